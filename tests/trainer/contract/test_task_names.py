import pytest

from trainer.contract.task_names import lead_of, split_name


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("worker0", ("worker", 0)),
        ("ps12", ("ps", 12)),
        ("worker", ("worker", 0)),
        ("", ("", 0)),
        ("7", ("", 7)),
        ("x" + "9" * 5000, ("x" + "9" * 4991, 999999999)),  # more digits than Python reads
    ],
)
def test_any_task_name_is_split_into_job_and_index(name: str, parts: tuple[str, int]) -> None:
    assert split_name(name) == parts


def test_chief0_is_the_lead_if_it_exists_and_else_worker0() -> None:
    assert lead_of(["worker0", "chief0"]) == "chief0"
    assert lead_of({"worker0": 1, "ps0": 2}) == "worker0"
