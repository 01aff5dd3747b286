"""What each ps will hold of a model with tables, by its settings alone."""

import pytest

from trainer.contract.model_files import built_in_card
from trainer.contract.settings import TrainingSettings
from trainer.contract.table_models import ps_bytes, rows_of


def _held(ps: int, **settings: object) -> list[int]:
    card = built_in_card(str(settings["model"]))
    assert card is not None
    return ps_bytes(card, TrainingSettings.from_mapping(settings).as_dict(), ps)


@pytest.mark.parametrize(
    ("optimizer", "bytes_of_row"),
    [
        (None, 17 * 4 * 2),
        ("adagrad", 17 * 4 * 2),
        ("sgd", 17 * 4),
        ("ftrl", 17 * 4 * 3),
        # The step that last needed a row is there for each table.
        ("adam", 17 * 4 * 3 + 2 * 8),
    ],
)
def test_a_ps_holds_its_rows_with_their_slots(optimizer: str | None, bytes_of_row: int) -> None:
    own: dict[str, object] = {"model": "wide_deep", "table_rows": 20_000_000, "optimizer": optimizer}
    rows = sum(rows_of(20_000_000))
    for ps in (1, 3):
        held = _held(ps, **own)
        assert len(held) == ps
        assert held == pytest.approx([1.15 * rows * bytes_of_row / ps] * ps, rel=1e-3)


def test_dense_variables_count_too_and_no_ps_holds_more_rows_than_another() -> None:
    few = _held(2, model="wide_deep", table_rows=20_000, optimizer="sgd")
    dense = 442 * 256 + 256 + 256 * 128 + 128 + 128 + 1
    assert sum(few) == pytest.approx(1.15 * 4 * (17 * sum(rows_of(20_000)) + dense), abs=2)
    assert max(few) - min(few) <= 1.15 * 17 * 4 + 1


def test_the_sizes_of_models_without_tables_are_not_guessed() -> None:
    assert _held(2, model="mnist_mlp", hidden_units=10_000_000) == []
