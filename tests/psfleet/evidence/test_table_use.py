"""What tasks recorded of a model's tables, as figures; whatever a host made up is left out."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from psfleet.report.model_tables import tables_in_use
from tests.psfleet.evidence.run_folders import drop, edit, records, verdict_of

GOOD = {
    **{"rows": 1000, "width": 8, "ids": 60, "distinct": 40, "hot": {"7": 9, "5": 4}},
    **{"of_ps": {"ps0": 30, "ps1": 20}},
}


@pytest.fixture
def run(copy_of: Callable[[str], Path]) -> Path:
    """A copy of a real run with tables on two ps."""
    return copy_of("tables")


def told(run: Path, /, **of: object) -> Mapping[str, object]:
    """Return the figures of a run whose workers tell this of a table."""
    edit(run, "worker0 worker1", "tables", samples=2, examples=10, tables={"deep": GOOD | of})
    verdict = verdict_of(run)
    json.dumps(verdict.as_json(), allow_nan=False)
    figures: Mapping[str, object] = verdict.figures["tables"]
    return figures


def test_the_figures_are_those_of_the_worker_that_sampled_most(run: Path) -> None:
    edit(run, "worker0", "tables", samples=2, examples=10, tables={"deep": GOOD})
    edit(run, "worker1", "tables", samples=3, examples=15, tables={"deep": GOOD | {"ids": 90}})
    (use,) = verdict_of(run).figures["tables"].values()
    assert (use["worker"], use["samples"], use["examples"], use["ids"]) == ("worker1", 3, 15, 90)
    assert use["hot"] == {"7": 9, "5": 4}


def test_a_real_run_has_the_rows_of_each_table_and_what_each_ps_holds(run: Path) -> None:
    figures = verdict_of(run).figures
    tables = {name: (of["rows"], of["width"]) for name, of in figures["tables"].items()}
    assert tables == {"wide": (207701, 1), "deep": (207701, 16)}
    assert sum(of["rows"] for of in figures["ps"].values()) == 2 * 207701
    balance = [of["table_bytes"] for of in figures["ps"].values()]
    assert max(balance) - min(balance) < 200
    assert all(of["table_bytes"] < of["bytes"] for of in figures["ps"].values())


@pytest.mark.parametrize(
    "of",
    [
        {"rows": "many"},
        {"rows": 39},  # fewer than the different ones
        {"ids": 39},
        {"ids": -60},
        {"distinct": 0},
        {"distinct": True},
        {"width": None},
        {"hot": {"7": 61}},
        {"of_ps": {"ps0": 61}},
    ],
)
def test_counts_that_contradict_each_other_are_left_out(run: Path, of: dict[str, object]) -> None:
    assert told(run) != {}
    assert told(run, **of) == {}


@pytest.mark.parametrize(
    ("told_part", "shown"),
    [(0.25, 0.25), (0, 0.0), (1, 1.0), (1.5, None), (-0.1, None), ("0.5", None), (True, None), ([], None)],
)
def test_a_part_of_colliding_ids_that_is_none_is_left_out(
    run: Path, told_part: object, shown: float | None
) -> None:
    (use,) = told(run, colliding=told_part).values()
    assert isinstance(use, dict)
    assert use.get("colliding") == shown
    assert tables_in_use({"tables": {"deep": use}})[0][-1] == ("-" if shown is None else f"{shown:.1%}")


@pytest.mark.parametrize(("hot", "shown"), [([7], {}), ({"7": "9", "5": 4}, {"5": 4}), ({"7": -1}, {})])
def test_rows_without_a_count_are_left_out(run: Path, hot: object, shown: dict[str, int]) -> None:
    (use,) = told(run, hot=hot).values()
    assert isinstance(use, dict)
    assert use["hot"] == shown


@pytest.mark.parametrize(
    "tables", [{}, {"deep": []}, {"deep": None}, {f"t{number}": GOOD for number in range(99)}]
)
def test_tables_of_another_form_or_too_many_do_not_fill_the_figures(
    run: Path, tables: dict[str, object]
) -> None:
    edit(run, "worker0 worker1", "tables", samples=2, examples=10, tables=tables)
    assert len(verdict_of(run).figures["tables"]) == min(
        40, sum(isinstance(of, dict) for of in tables.values())
    )


def test_a_run_without_such_records_has_no_such_figures(run: Path) -> None:
    assert {record["event"] for record in records(run, "worker1")} >= {"tables"}
    drop(run, "worker0 worker1", "tables")
    assert verdict_of(run).figures["tables"] == {}
