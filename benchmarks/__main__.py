"""`python -m benchmarks` runs all rows of all workloads, round after round, and then prints the table."""

import argparse
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.attempts import Attempts, end_in_order, say
from benchmarks.data import ROOT, examples_of
from benchmarks.figures import Figures
from benchmarks.network import NetworkError
from benchmarks.results import Rounds, machine, medians, page, tables
from benchmarks.rows import ROWS, WORKLOADS
from benchmarks.run import Marks, Run, Setup, Start, start_process
from trainer.contract.json_files import write_json


def main(arguments: Sequence[str], start: Start = start_process) -> int:
    """Measure the chosen rows round by round; write results.json, .md and .svg after each round.

    Return 0, or 1 if a run has failed twice. `start` starts a task.
    """
    options = _options(arguments)
    rounds: dict[str, dict[str, dict[int, Figures]]] = {}
    attempts = Attempts(Marks(options.warm_up, options.seconds, options.longest))
    before = machine()
    with TemporaryDirectory(prefix="psfleet-bench-") as scratch:
        for number in range(options.rounds):
            for workload in options.workloads:
                rows = [row for row in options.rows if workload.name in row.workloads]
                data = examples_of(workload, Path(scratch, "data"))
                turn = number % max(len(rows), 1)
                for row in rows[turn:] + rows[:turn]:
                    where = f"round {number + 1}, {workload.title}, {row.title}"
                    folder = Path(scratch, f"{number}-{workload.name}-{row.name}")
                    setup = Setup(row, workload, seed=number + 1)
                    run_in = partial(Run, setup, data=data, start=start)
                    found = attempts.measure(where, folder, run_in)
                    if found is not None:
                        rounds.setdefault(workload.name, {}).setdefault(row.name, {})[number] = found
            if rounds:
                _write(options, before, rounds, attempts.failures)
    return 0 if attempts.is_whole else 1


def _write(
    options: argparse.Namespace, before: dict[str, object], rounds: Rounds, failures: Sequence[str]
) -> None:
    """Write results.json, .md and .svg with all rounds so far; after the last round also print the tables."""
    from benchmarks.picture import write_picture

    summaries = medians(rounds)
    settings = {name: getattr(options, name) for name in ("rounds", "warm_up", "seconds", "longest")}
    flags = {row.name: dict(row.flags) for row in options.rows}
    everything = {"machine": before, "asked": settings, "flags": flags, "medians": summaries}
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "results.json", {**everything, "rounds": rounds, "failures": failures}, indent=1)
    (folder / "results.md").write_text(page(before, settings, summaries), encoding="utf-8")
    write_picture(folder / "results.svg", summaries)
    done = {number for rows in rounds.values() for of_row in rows.values() for number in of_row}
    if max(done) + 1 == options.rounds:
        say(f"\n{tables(summaries)}")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=3)
    add("--warm_up", type=float, default=3.0, help="seconds from the first step to the first mark")
    add("--seconds", type=float, default=8.0, help="from the first mark to the second")
    add("--longest", type=float, default=60.0, help="from the first step to the loss at most")
    add("--folder", type=Path, default=ROOT / "benchmarks", help="where results.json, .md and .svg go")
    for name, every in (("rows", ROWS), ("workloads", WORKLOADS)):
        named = {one.name: one for one in every}
        words = f"some of {','.join(named)}; all where none is named"
        add(f"--{name}", type=partial(_chosen, named), default=list(every), help=words)
    return parser.parse_args(arguments)


def _chosen(named: Mapping[str, object], text: str) -> list[object]:
    unknown = [name for name in text.split(",") if name not in named]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(named)}")
    return [named[name] for name in text.split(",")]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end_in_order)
    try:
        sys.exit(main(sys.argv[1:]))
    except NetworkError as error:
        sys.exit(f"{error}\nEach task gets a network of its own: be root, or type `make bench`.")
