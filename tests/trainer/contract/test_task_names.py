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
def test_a_name_in_its_parts_whatever_a_host_has_sent(name: str, parts: tuple[str, int]) -> None:
    assert split_name(name) == parts


def test_the_coordinator_of_a_program_leads_else_worker_0() -> None:
    assert lead_of(["worker0", "chief0"]) == "chief0"
    assert lead_of({"worker0": 1, "ps0": 2}) == "worker0"
