"""`python -m benchmarks` runs all rows of all workloads, round after round, and then prints the table."""

import argparse
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.data import ROOT, write_examples
from benchmarks.network import NetworkError
from benchmarks.results import Rounds, machine, medians, page, tables
from benchmarks.rows import ROWS, WORKLOADS
from benchmarks.run import Figures, Run, RunFailed, Start, start_process
from trainer.contract.json_files import write_json

# TensorFlow rarely refuses a call, which ends programs that do not repeat it.
_ATTEMPTS = 2


def main(arguments: Sequence[str], start: Start = start_process) -> int:
    """Measure the chosen rows and write the results; return 1 if a run has failed twice."""
    options = _options(arguments)
    rounds: dict[str, dict[str, dict[int, Figures]]] = {}
    failures: list[str] = []
    is_whole = True
    before = machine()
    with TemporaryDirectory(prefix="psfleet-bench-") as scratch:
        data = Path(scratch, "data")
        data.mkdir()
        write_examples(data)
        for number in range(options.rounds):
            for workload in options.workloads:
                rows = [row for row in options.rows if workload.name in (row.workloads or {workload.name})]
                turn = number % max(len(rows), 1)
                for row in rows[turn:] + rows[:turn]:
                    where = f"round {number + 1}, {workload.title}, {row.title}"
                    folder = Path(scratch, f"{number}-{workload.name}-{row.name}")
                    for attempt in range(_ATTEMPTS):
                        found = _measured(Run(row, workload, folder / str(attempt), data, start), options)
                        if not isinstance(found, RunFailed):
                            rounds.setdefault(workload.name, {}).setdefault(row.name, {})[number] = found
                            _say(f"{where}: {found['steps_per_second']:,.1f} global steps/s")
                            break
                        failures.append(f"{where}: {found}")
                        _say(failures[-1])
                    else:
                        is_whole = False
            if rounds:
                _write(options, before, rounds, failures)
    return 0 if is_whole else 1


def _measured(run: Run, options: argparse.Namespace) -> Figures | RunFailed:
    """Return the figures of a run, or its failure."""
    try:
        with run:
            return run.measure(options.warm_up, options.seconds)
    except RunFailed as error:
        return error


def _write(
    options: argparse.Namespace, before: dict[str, object], rounds: Rounds, failures: Sequence[str]
) -> None:
    """Write the results so far after each round, and print the tables after the last one."""
    from benchmarks.picture import write_picture

    summaries = medians(rounds)
    asked = {name: getattr(options, name) for name in ("rounds", "warm_up", "seconds")}
    flags = {row.name: dict(row.flags) for row in options.rows}
    everything = {"machine": before, "asked": asked, "flags": flags, "medians": summaries}
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "results.json", {**everything, "rounds": rounds, "failures": failures}, indent=1)
    (folder / "results.md").write_text(page(before, asked, summaries), encoding="utf-8")
    write_picture(folder / "results.svg", summaries)
    done = {number for rows in rounds.values() for of_row in rows.values() for number in of_row}
    if max(done) + 1 == options.rounds:
        _say(f"\n{tables(summaries)}")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=3)
    add("--warm_up", type=float, default=3.0, help="seconds from the first step to the first mark")
    add("--seconds", type=float, default=8.0, help="from the first mark to the second")
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


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _end(number: int, _frame: object) -> None:
    """Raise an exception, so that all started processes are ended."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    try:
        sys.exit(main(sys.argv[1:]))
    except NetworkError as error:
        sys.exit(f"{error}\nEach task gets a network of its own: be root, or type `make bench`.")
