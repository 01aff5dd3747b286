"""Computes the report's section on a model's tables: which rows were needed, and which rows each ps had."""

from collections.abc import Mapping
from typing import Any

from psfleet.evidence.answer import size
from psfleet.report.charts import MOST_BARS
from psfleet.report.number_format import number, shorten

Rows = tuple[tuple[str, ...], ...]
COLUMNS = (
    *("table", "rows", "width", "examples sampled", "their ids", "different rows", "of all rows"),
    *("rows of a batch", "hottest row, of the ids", "hottest five", "different ids that share a row"),
)
PS_COLUMNS = ("ps", "rows", "bytes of tables", "other bytes", "of the rows that travel")


def tables_in_use(figures: Mapping[str, Any]) -> Rows:
    """Return a row of cells, as in COLUMNS, for each table: what sampled batches of one worker needed.

    `figures` is the result of `figures_of`. Return () for a model without tables, or if nothing was sampled.
    """
    return tuple(_row(name, of) for name, of in figures["tables"].items())


def tables_by_ps(figures: Mapping[str, Any]) -> Rows:
    """Return a row of cells, as in PS_COLUMNS, for each ps with rows of tables; () without tables.

    Of more than 24 ps, the first 24 count. `figures` is the result of `figures_of`.
    """
    uses: Mapping[str, Mapping[str, Any]] = figures["tables"]
    travelled = {name: sum(of["of_ps"].get(name, 0) for of in uses.values()) for name in figures["ps"]}
    total = sum(travelled.values())
    return tuple(
        (
            shorten(name, 40),
            number(of["rows"]),
            size(of["table_bytes"]),
            size(of["bytes"] - of["table_bytes"]),
            _part(travelled[name], total),
        )
        for name, of in list(figures["ps"].items())[:MOST_BARS]
        if "rows" in of
    )


def _row(name: str, of: Mapping[str, Any]) -> tuple[str, ...]:
    hot = list(of["hot"].items())
    return (
        shorten(name, 40),
        *(number(of[field]) for field in ("rows", "width", "examples", "ids", "distinct")),
        _part(of["distinct"], of["rows"]),
        number(round(sum(of["of_ps"].values()) / of["samples"])),
        f"{shorten(hot[0][0], 20)}: {_part(hot[0][1], of['ids'])}" if hot else "-",
        _part(sum(count for _, count in hot), of["ids"]) if hot else "-",
        f"{of['colliding']:.1%}" if "colliding" in of else "-",
    )


def _part(amount: int, of: int) -> str:
    return f"{amount / of:.1%}" if of else "-"
