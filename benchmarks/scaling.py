"""`python -m benchmarks.scaling` measures more and more workers, each with a part of a core and of a link."""

import argparse
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.attempts import Attempts, end_in_order, say
from benchmarks.cores import CoresError
from benchmarks.data import ROOT, examples_of
from benchmarks.figures import Figures
from benchmarks.network import Limits, NetworkError
from benchmarks.results import machine, middle
from benchmarks.rows import CORES, ROWS, WORKLOADS, Row, Workload
from benchmarks.run import Marks, Run, Setup, Start, start_process
from benchmarks.scaling_page import Curve, Point, page, picture
from trainer.contract.json_files import write_json
from trainer.host.wording import counted

# What the kernel and the benchmark itself may use of the machine.
_RESERVED_CORES = 0.1
# A task needs some 10 CPU-s until its first step; others may use the machine, too.
_CPU_SECONDS_TO_BEGIN = 60.0
_ALONE = next(row for row in ROWS if row.name == "alone_1_thread")
_MODELS = {workload.name: workload for workload in WORKLOADS if workload.ps == 1}
_SCALABLE = {row.name: row for row in ROWS if row.workers and not row.coordinator and not row.straggler}


def main(arguments: Sequence[str], start: Start = start_process) -> int:
    """Measure all setups round by round; write scaling.json, .md and .svg after each measured run.

    Return 0, or 1 if a run has failed twice. `start` starts a task.
    """
    options = options_of(arguments)
    setups = list(setups_of(options.models, options.rows, options.workers, options.links, options.share))
    rounds: dict[int, dict[int, Figures]] = {}
    to_begin = _CPU_SECONDS_TO_BEGIN / options.share
    attempts = Attempts(Marks(options.warm_up, options.seconds, options.longest, to_begin))
    before = machine()
    say(f"{options.rounds * len(setups)} runs, each of some {options.longest:g} s at most after its start")
    with TemporaryDirectory(prefix="psfleet-bench-") as scratch:
        for number in range(options.rounds):
            for place, setup in enumerate(setups):
                data = examples_of(setup.workload, Path(scratch, "data"))
                run_in = partial(Run, replace(setup, seed=number + 1), data=data, start=start)
                where = f"{number * len(setups) + place + 1}. {title_of(setup)}"
                found = attempts.measure(where, Path(scratch, f"{number}-{place}"), run_in)
                if found is not None:
                    rounds.setdefault(place, {})[number] = found
                    _write(options, before, setups, rounds, attempts.failures)
    return 0 if attempts.is_whole else 1


def title_of(setup: Setup) -> str:
    """Return a setup in words, such as "CNN, 200 Mbit/s, psfleet, 4 workers"."""
    model, row = setup.workload.title, setup.row
    if not row.workers:
        return f"{model}, one process"
    return f"{model}, {setup.limits.megabits:,} Mbit/s, {row.title}, {counted(row.workers, 'worker')}"


def setups_of(
    models: Sequence[Workload],
    rows: Sequence[Row],
    workers: Sequence[int],
    links: Sequence[int],
    share: float,
) -> Iterator[Setup]:
    """Yield the setups of a round: for each model one process, then all links, rows and numbers of workers.

    They are in this order, the numbers changing fastest. `workers` are these numbers, `links` speeds in
    Mbit/s, and `share` is the part of a core that a worker has. Raises ValueError if the machine has too few
    cores.
    """
    # Each task must wait for the others at least as long as these slow tasks need to start.
    known = {"threads": 1, "barrier_deadline_seconds": _CPU_SECONDS_TO_BEGIN / share}
    for model in models:
        yield Setup(replace(_ALONE, flags=known), model, Limits(cores={"worker0": share}))
        for megabits in links:
            for row in rows:
                for number in workers:
                    scaled = row.with_workers(number)
                    scaled = replace(scaled, flags={**scaled.flags, **known})
                    yield Setup(scaled, model, Limits(megabits, cores_of(scaled, share)))


def cores_of(row: Row, share: float) -> dict[str, float]:
    """Return {task: its cores}: `share` for each worker, and for each ps an equal part of the rest.

    A ps has at most 1. Raises ValueError if a ps would have less than `share`, or if the workers alone need
    too much.
    """
    remaining = CORES - _RESERVED_CORES - row.workers * share
    of_ps = min(1.0, remaining / row.ps) if row.ps else remaining
    if of_ps < (share if row.ps else 0):
        raise ValueError(
            f"{row.workers} workers of {share:g} core and {row.ps} ps are too many for {CORES} cores"
        )
    return {task: round(of_ps, 3) if task.startswith("ps") else share for task in row.tasks}


def curves_of(setups: Sequence[Setup], rounds: Mapping[int, Mapping[int, Figures]]) -> list[Curve]:
    """Return a curve of medians for each workload, row and link, with a point for each measured run.

    `rounds` is {position in `setups`: {round: its figures}}. Workloads whose single process was not measured
    have no curves.
    """
    medians = {place: middle(list(of_run.values())) for place, of_run in rounds.items()}
    alone: dict[str, Figures] = {}
    points: dict[tuple[str, str, int], list[Point]] = {}
    for place, figures in sorted(medians.items()):
        row, model, limits = setups[place].row, setups[place].workload, setups[place].limits
        if limits.megabits is None:
            alone[model.name] = figures
        else:
            of_ps = limits.cores.get("ps0", 0.0)
            point = Point(row.workers, limits.cores["worker0"], of_ps, figures)
            points.setdefault((model.name, row.name, limits.megabits), []).append(point)
    return [
        Curve(_MODELS[model], _SCALABLE[row].title, megabits, of_curve, alone[model])
        for (model, row, megabits), of_curve in points.items()
        if model in alone
    ]


def _write(
    options: argparse.Namespace,
    before: Mapping[str, object],
    setups: Sequence[Setup],
    rounds: Mapping[int, Mapping[int, Figures]],
    failures: Sequence[str],
) -> None:
    settings = {name: getattr(options, name) for name in ("share", "rounds", "warm_up", "seconds", "longest")}
    runs = [
        {
            "model": setup.workload.name,
            "loss": setup.workload.loss,
            "row": setup.row.name,
            "workers": setup.row.workers,
            "megabits": setup.limits.megabits,
            "cores": setup.limits.cores,
            "flags": setup.row.flags,
            "median": middle(list(rounds[place].values())),
            "rounds": rounds[place],
        }
        for place, setup in enumerate(setups)
        if place in rounds
    ]
    folder, curves = options.folder, curves_of(setups, rounds)
    folder.mkdir(parents=True, exist_ok=True)
    everything = {"machine": before, "asked": settings, "runs": runs, "failures": failures}
    write_json(folder / "scaling.json", everything, indent=1)
    (folder / "scaling.md").write_text(page(before, settings, curves), encoding="utf-8")
    if curves:
        (folder / "scaling.svg").write_text(f"{picture(curves)}\n", encoding="utf-8")


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line; print a message and exit with 2 if they are invalid."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    add = parser.add_argument
    add("--models", type=partial(_some, _MODELS), default=list(_MODELS.values()), help=_among(_MODELS))
    add("--workers", type=_numbers, default=[1, 2, 4, 8], help="such as 1,8")
    add("--links", type=_numbers, default=[1000, 200], help="their speeds in Mbit/s, such as 1000,200")
    add("--rows", type=partial(_some, _SCALABLE), default=[_SCALABLE["psfleet"]], help=_among(_SCALABLE))
    add("--share", type=float, default=0.2, help="the part of a core of each worker, and of one process")
    add("--rounds", type=int, default=1)
    add("--warm_up", type=float, default=5.0, help="seconds from the first step to the first mark")
    add("--seconds", type=float, default=20.0, help="from the first mark to the second")
    add("--longest", type=float, default=600.0, help="from the first step to the loss at most")
    add("--folder", type=Path, default=ROOT / "benchmarks", help="where scaling.json, .md and .svg go")
    options = parser.parse_args(arguments)
    try:
        list(setups_of(options.models, options.rows, options.workers, options.links, options.share))
    except ValueError as error:
        parser.error(str(error))
    return options


def _among(named: Mapping[str, object]) -> str:
    return f"some of {','.join(named)}"


def _some(named: Mapping[str, object], text: str) -> list[object]:
    unknown = [name for name in text.split(",") if name not in named]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(named)}")
    return [named[name] for name in text.split(",")]


def _numbers(text: str) -> list[int]:
    numbers = sorted({int(number) for number in text.split(",")})
    if numbers[0] < 1:
        raise argparse.ArgumentTypeError(f"{numbers[0]} is not above 0")
    return numbers


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end_in_order)
    try:
        sys.exit(main(sys.argv[1:]))
    except (NetworkError, CoresError) as error:
        sys.exit(f"{error}\nEach task gets a network and a part of a core: be root.")
