"""The results of a benchmark's rounds: medians, ratios of runs in the same round, and tables."""

import math
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import packages_distributions, version
from pathlib import Path
from statistics import median

from benchmarks.data import ROOT
from benchmarks.figures import Figures
from benchmarks.rows import CORES, FEW, MANY, ROWS, WORKLOADS, Row, Workload

# Workload -> row -> round -> figures.
Rounds = Mapping[str, Mapping[str, Mapping[int, Figures]]]
# Workload -> row -> figures.
Medians = Mapping[str, Mapping[str, Figures]]


def seconds_text(seconds: float) -> str:
    """Return the seconds to a loss as tables show them, such as "12.5"; "not reached" for infinity."""
    return f"{seconds:,.1f}" if math.isfinite(seconds) else "not reached"


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f}"


SPEED, CPU = "examples_per_second", "cpu_seconds_per_1000_examples"
SECONDS = "seconds_to_loss"
_COLUMNS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "steps_per_second": ("global steps/s", lambda value: f"{value:,.1f}"),
    SPEED: ("examples/s", lambda value: f"{value:,.0f}"),
    SECONDS: ("seconds to the loss", seconds_text),
    CPU: ("CPU-s for 1,000 examples", lambda value: f"{value:.4f}"),
    "bytes_of_the_least": ("bytes of the least", lambda value: f"{value:.3f}"),
    "largest_ps_of_mean": ("largest ps of mean", lambda value: f"{value:.2f}"),
    "memory_of_a_ps": ("MB of a ps", _megabytes),
    "memory_of_a_worker": ("MB of a worker", _megabytes),
    "memory_of_the_lead": ("MB of the lead", _megabytes),
    "cores_of_others": ("cores that others used", lambda value: f"{value:.1f}"),
}
_COMPARED = {
    "times_as_fast": "psfleet is so many times as fast",
    "times_as_soon": "psfleet reaches the loss so many times as soon",
}


def machine() -> dict[str, object]:
    """Return {name: value} about this machine and what is measured on it.

    The names are `processor`, `cores`, `kernel`, `python`, the name of TensorFlow's package, `commit`, `load`
    (the mean of the last minute) and `when`, in UTC.
    """
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    package = packages_distributions()["tensorflow"][0]
    command = ["/usr/bin/env", "git", "describe", "--always", "--dirty"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "processor": next(iter(models), platform.machine()),
        "cores": CORES,
        "kernel": platform.release(),
        "python": platform.python_version(),
        package: version(package),
        "commit": commit,
        "load": round(os.getloadavg()[0], 1),
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def medians(rounds: Rounds) -> dict[str, dict[str, Figures]]:
    """Return {workload: {row: figures}}, with the median of each figure over the rounds.

    There are three more figures, which compare psfleet's row of the same replication with this row:
    `times_as_fast`, `times_as_soon` and `times_the_cpu`. Each is [median, least, most] of the rounds' ratios,
    and above 1 means that psfleet is faster, or sooner, or needs more CPU. Without common rounds it is
    missing.
    """
    bases = {row.name: row.base for row in ROWS}
    return {
        workload: {row: _summary(of_row, rows.get(bases[row], {})) for row, of_row in rows.items()}
        for workload, rows in rounds.items()
    }


def middle(rounds: Sequence[Figures]) -> Figures:
    """Return {figure: median over the rounds}, for the rounds of one run; infinity counts as the largest.

    Figures that are mappings are left out. There must be at least one round.
    """
    names = [name for name, value in rounds[0].items() if not isinstance(value, Mapping)]
    return {name: median(figures[name] for figures in rounds) for name in names}


def _summary(rounds: Mapping[int, Figures], base: Mapping[int, Figures]) -> Figures:
    known = list(rounds.values())
    summary = middle(known)
    parts = {name for figures in known for name in figures["cpu_milliseconds_per_step"]}
    summary["cpu_milliseconds_per_step"] = {
        name: [
            median(figures["cpu_milliseconds_per_step"].get(name, (0.0, 0.0))[mode] for figures in known)
            for mode in (0, 1)
        ]
        for name in sorted(parts)
    }
    summary["range_of_speed"] = _range([figures[SPEED] for figures in known])
    summary["range_of_seconds"] = _range([figures[SECONDS] for figures in known])
    for title, figure in (("times_as_fast", SPEED), ("times_the_cpu", CPU)):
        if pairs := [base[number][figure] / rounds[number][figure] for number in rounds if number in base]:
            summary[title] = _range(pairs)
    both = [(rounds[number][SECONDS], base[number][SECONDS]) for number in rounds if number in base]
    if pairs := [own / of_base for own, of_base in both if math.isfinite(own) and math.isfinite(of_base)]:
        summary["times_as_soon"] = _range(pairs)
    return summary


def _range(values: Sequence[float]) -> list[float]:
    return [median(values), min(values), max(values)]


def page(machine: Mapping[str, object], settings: Mapping[str, object], summaries: Medians) -> str:
    """Return a Markdown page with the machine, the settings of the benchmark, and the tables."""
    conditions = [f"{name} {value}" for name, value in {**machine, **settings}.items()]
    return f"# Results of make bench\n\n{', '.join(conditions)}\n\n{tables(summaries)}"


def tables(summaries: Medians) -> str:
    """Return Markdown tables: the figures of each workload, then what more rows cost, then CPU by thread.

    The second part is there only if both workloads that it compares were measured.
    """
    known = [(workload, summaries[workload.name]) for workload in WORKLOADS if workload.name in summaries]
    parts = [_figures(*one) for one in known] + [_profile(*one) for one in known]
    if FEW.name in summaries and MANY.name in summaries:
        parts.insert(len(known), _growth(summaries[FEW.name], summaries[MANY.name]))
    return "\n".join(parts)


def _figures(workload: Workload, of_rows: Mapping[str, Figures]) -> str:
    heads = [workload.heading, *(head for head, _ in _COLUMNS.values()), *_COMPARED.values()]
    return table(heads, [_cells(row, of_rows[row.name]) for row in ROWS if row.name in of_rows])


def _growth(few: Mapping[str, Figures], many: Mapping[str, Figures]) -> str:
    """Return a table: how many times as much CPU and memory each row needs with more table rows.

    `few` and `many` are {row: figures}, with fewer and with more table rows; batches need equally many.
    """
    names = {
        CPU: "CPU of a step",
        "memory_of_a_worker": "memory of a worker",
        "memory_of_the_lead": "of the lead",
    }
    few_bytes, many_bytes = (workload.tables.bytes_of_rows for workload in (FEW, MANY) if workload.tables)
    lines = []
    for row in ROWS:
        if row.name in few and row.name in many:
            pair = (few[row.name], many[row.name])
            less, more = (figures["memory_of_a_ps"] for figures in pair)
            of_a_ps = (many_bytes - few_bytes) / row.with_ps(MANY.ps).ps
            times = [pair[1][name] / pair[0][name] for name in names]
            lines.append([row.title, *(f"{value:.2f}" for value in (*times, (more - less) / of_a_ps))])
    heads = [
        "100 times the rows, as a multiple",
        *names.values(),
        "of a ps: its growth of that of rows and slots",
    ]
    return table(heads, lines)


def _profile(workload: Workload, of_rows: Mapping[str, Figures]) -> str:
    spent = {row.title: of_rows[row.name]["cpu_milliseconds_per_step"] for row in ROWS if row.name in of_rows}
    names = sorted({name for threads in spent.values() for name in threads})
    lines = [
        [name, *(f"{sum(threads[name]):.2f}" if name in threads else "" for threads in spent.values())]
        for name in names
    ]
    sums = [f"{sum(map(sum, threads.values())):.2f}" for threads in spent.values()]
    kernel = [f"{sum(parts[1] for parts in threads.values()):.2f}" for threads in spent.values()]
    heads = [f"{workload.title}: CPU-ms of a step", *spent]
    return table(heads, [*lines, ["together", *sums], ["of these in the kernel", *kernel]])


def table(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with these heads; the first column is aligned left, all others right."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cells(row: Row, figures: Figures) -> list[str]:
    shown = [write(figures[name]) if name in figures else "" for name, (_, write) in _COLUMNS.items()]
    compared = [
        "{:.2f} ({:.2f} to {:.2f})".format(*figures[name]) if row.name != row.base and name in figures else ""
        for name in _COMPARED
    ]
    return [row.title, *shown, *compared]
