"""A model's card is read from the text of its file, and each mistake in it is named with its line."""

import json
from pathlib import Path

import pytest
import yaml

from trainer.contract.model_card import Card
from trainer.contract.model_files import MODELS, CardError, built_in_card, read_card

REFUSED = yaml.safe_load(Path(__file__).with_name("wrong_cards.yml").read_text("utf-8"))
WHOLE = """
raise SystemExit("this file is never run")
import no_such_module
CARD: dict[str, object] = {
    "learning_rates": {"adam": 1e-3, "sgd": +2},
    "rates_per_gradient": False, "settings": ("hidden_units",), "data": "clicks", "own_parts": True,
    "metrics": {"auc": "higher", "bias": "neither"},
    "goals": {"auc": {"level": "best", "minimum": -0.5}, "bias": {"target": 1, "tolerance": 0.5}},
    "target_loss": {"level": "best_loss", "maximum": 1},
    "tables": {"wide": {"rows": 7, "width": 1}, "deep": {"rows": "data", "width": 16}},
    "tables_optional": True,
    "layers": {"first": (3, 4)},
}
"""


def test_a_card_is_read_without_running_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(WHOLE)
    card = read_card(tmp_path / "mine.py")
    assert card.learning_rates == {"adam": 0.001, "sgd": 2.0}
    assert [*card.learning_rates] == ["adam", "sgd"], "the first is the default"
    assert card.settings == ("hidden_units",)
    assert card.goals["auc"] == {"level": "best", "minimum": -0.5}
    assert (card.needs_tables, card.tables["deep"]) == (False, {"rows": "data", "width": 16})


def test_a_card_survives_a_round_trip_through_json(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(WHOLE)
    for card in (read_card(tmp_path / "mine.py"), *map(built_in_card, MODELS)):
        assert card is not None
        assert Card.from_json(json.loads(json.dumps(card.to_json()))) == card


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_in_a_card_is_named_with_its_file_and_line(tmp_path: Path, case: str) -> None:
    path = tmp_path / "mine.py"
    path.write_bytes(REFUSED[case]["file"].encode("latin-1"))
    with pytest.raises(CardError) as refused:
        read_card(path)
    assert [problem.replace(str(path), "mine.py") for problem in refused.value.problems] == REFUSED[case][
        "says"
    ]


def test_a_file_that_is_not_there_or_too_large_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    with pytest.raises(CardError, match=rf"^{path} cannot be read \(No such file or directory\); expected"):
        read_card(path)
    path.write_text("#" * 1_000_001)
    with pytest.raises(CardError, match=rf"^{path} has more than 1,000,000 bytes; expected"):
        read_card(path)
    with pytest.raises(CardError, match=r"cannot be read \(Is a directory\)"):
        read_card(tmp_path)


def test_only_files_of_built_in_models_have_built_in_cards() -> None:
    assert built_in_card("../../../secret") is None
    assert built_in_card("model") is None
