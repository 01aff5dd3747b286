"""What held a run back, by its records: each cause, two at once, none, and what the records do not tell."""

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from psfleet.evidence.figures import figures_of
from psfleet.evidence.held_back import Cause, held_back, held_back_in_words
from psfleet.evidence.reading import read_run
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.time_spent import Span, Use, time_spent
from tests.psfleet.evidence.run_folders import ask_for, edit, records, rewrite, tell_settings
from tests.psfleet.report.made_runs import make_plan, make_run
from trainer.contract.plan import ClusterPlan

# Each worker of a made run takes 200 steps of 50 ms.
SECONDS, STEPS = 10.0, 200
GBIT = 125_000_000  # bytes a second
Fields = dict[str, Any]


def used(
    cpu: float, without_core: float | None = 0.1, active: float | None = None, **other: object
) -> Fields:
    """What a process used in those seconds, on four cores; it was `active` at this part of 400 moments."""
    moments = {"samples": 0, "active_samples": 0}
    if active is not None:
        moments = {"samples": 400, "active_samples": round(400 * active)}
    waits = {} if without_core is None else {"core_wait_seconds": without_core}
    return {"seconds": SECONDS, "cpu_seconds": cpu, "cores": 4, **moments, **waits, **other}


IDLE, BUSY = used(1.0), used(9.5)


@dataclass
class Made:
    """A run to make: what each task used, the bytes of each worker, its waits and settings."""

    workers: Sequence[Fields | None] = (IDLE, IDLE)
    ps: Sequence[Fields | None] = (IDLE,)
    bytes: int | None = None
    waiting: Sequence[float] = ()
    seconds: Sequence[float] = ()
    steps: Sequence[int] = ()
    settings: Fields = field(default_factory=dict)
    gpus: bool = False

    def folder(self, folder: Path) -> Path:
        """Make it."""
        plan = make_plan(len(self.workers), len(self.ps))
        if not self.gpus:
            tasks = tuple(replace(task, gpus=()) for task in plan.tasks)
            plan = ClusterPlan(plan.cluster_name, tasks)
        make_run(folder, plan)
        tell_settings(folder, **self.settings)
        for job, uses in (("worker", self.workers), ("ps", self.ps)):
            for index, use in enumerate(uses):
                self._tell(folder, f"{job}{index}", use)
        for index, waited in enumerate(self.waiting):
            edit(folder, f"worker{index}", "step", waiting_seconds=waited)
        for index, seconds in enumerate(self.seconds):
            edit(folder, f"worker{index}", "step", seconds=seconds)
        for index, steps in enumerate(self.steps):
            edit(folder, f"worker{index}", "step", steps=steps)
        if self.bytes is not None:
            ended = {"alive": False, "failed": False, "exit_code": 0}
            ended |= {"bytes_received": self.bytes, "bytes_sent": self.bytes}
            content = [{"name": f"worker{index}", **ended} for index in range(len(self.workers))]
            (folder / "tasks.json").write_text(json.dumps(content))
        return folder

    @staticmethod
    def _tell(folder: Path, task: str, use: Fields | None) -> None:
        told = records(folder, task)
        edit_waits = {"waiting_seconds": 0.0}
        told = [record | edit_waits if record["event"] == "step" else record for record in told]
        if use is not None:
            told.insert(-1, told[-1] | {"event": "resources"} | use)
        rewrite(folder, task, told)


SYNC = {"replication": "sync"}
HALF_THE_BYTES = "trainer_wire_dtype: bfloat16 halves the bytes"
FEWER_PUSHES = "trainer_push_every: 4 to 8 moves so many times fewer bytes, but needs more examples"
LARGER_BATCHES = "a larger trainer_batch_size: fewer bytes for an example"
# name -> the run, the causes, and what the two lines have.
CASES: Mapping[str, tuple[Made, Sequence[str], Sequence[str]]] = {
    "a slow link": (
        Made(bytes=round(GBIT * SECONDS / 2)),
        ["network"],
        [
            "the network: of a step's 50 ms a worker waited at least 44.5 ms for 6.25 MB to and from ps0",
            " (1 Gbit/s); ps0 had",
            "ps0 had work in at most 11% of the time",
            f"{HALF_THE_BYTES}, or {FEWER_PUSHES}",
        ],
    ),
    "half the bytes already": (
        Made(bytes=GBIT, settings={"wire_dtype": "bfloat16"}),
        ["network"],
        [f"| {FEWER_PUSHES}, or {LARGER_BATCHES}"],
    ),
    "fewer pushes already": (
        Made(bytes=GBIT, settings={"push_every": 8}),
        ["network"],
        [f"| {HALF_THE_BYTES}, or {LARGER_BATCHES}"],
    ),
    "tables, which take no fewer pushes": (
        Made(bytes=GBIT, settings={"model": "wide_deep"}),
        ["network"],
        [f"| {HALF_THE_BYTES}, or {LARGER_BATCHES}"],
    ),
    "bytes that nobody counted": (Made(), ["network"], ["for what travels to and from ps0; "]),
    "a full ps": (
        Made(ps=[used(34.0, active=1.0)]),
        ["ps"],
        ["ps0: of a step's 50 ms", "work in at least 99%", "one more ps, on another host"],
    ),
    "a ps whose threads take turns on one core of four": (
        Made(ps=[used(8.5, 0.0, active=0.95)]),
        ["ps"],
        ["it had work in at least 85%"],
    ),
    "a ps without cores": (
        Made(ps=[used(3.0, 8.0, active=0.9)]),
        ["ps"],
        ["free cores for ps0: a host without workers"],
    ),
    "one full ps of two": (Made(ps=[IDLE, used(34.0)]), ["ps"], ["ps1: of a step's"]),
    "a ps with work in half of the time": (
        Made(ps=[used(6.0, active=0.6)]),
        ["network_or_ps"],
        ["the network or ps0: ", "ps0 had work in at most 61%"],
    ),
    "a ps without records": (Made(ps=[None]), ["network_or_ps"], ["ps0 had work in at most 100%"]),
    "calls that wait for each other": (
        Made(bytes=10_000 * STEPS),
        ["calls"],
        ["calls, not their bytes: ", "20 kB", "trainer_pull_ahead: true, or a larger trainer_batch_size"],
    ),
    "the same, pulled ahead, two ps": (
        Made(bytes=10_000 * STEPS, ps=[IDLE, IDLE], settings={"pull_ahead": True}),
        ["calls"],
        ["a larger trainer_batch_size, or fewer ps"],
    ),
    "many bytes on a link below 100 Mbit/s": (
        Made(bytes=600_000 * 20, steps=[1, 1]),
        ["network"],
        ["1.2 MB"],
    ),
    "computing": (
        Made(workers=[used(9.5, active=0.99)] * 2),
        ["compute"],
        [
            "nothing but computing: at least 95% of the workers' time, 47.5 ms of CPU a step",
            "more workers, or GPUs",
        ],
    ),
    "small steps": (
        Made(workers=[used(9.5, active=0.99)] * 2, steps=[500] * 2),
        ["calls"],
        [
            "small steps: each takes 0.95 ms of its worker's CPU, of which some 0.6 ms",
            "larger trainer_batch_size",
        ],
    ),
    "no core": (
        Made(workers=[used(2.0, 8.0, active=0.99)] * 2),
        ["cores"],
        ["too few cores: ready threads had none in at least 78%", "more hosts, or fewer tasks"],
    ),
    "small steps without cores, as they were recorded": (
        Made(
            workers=[
                used(2.33, 14.89, cores=2, samples=45, active_samples=28),
                used(2.35, 15.74, cores=2, samples=45, active_samples=34),
            ],
            steps=[85] * 2,
        ),
        ["cores", "calls"],
        ["too few cores: ", "small steps: each takes 1.38 ms", "on these; a larger trainer_batch_size"],
    ),
    "no core, and the network": (
        Made(workers=[used(1.0, 4.0, active=0.5)] * 2),
        ["network", "cores"],
        ["the network: ", "; and too few cores: "],
    ),
    "a slow worker of four": (
        Made(workers=[used(9.5, active=0.99)] * 3 + [used(8.0, active=0.9)], steps=[10, 10, 10, 1]),
        ["stragglers"],
        ["worker3 took 10.0 times as long as the median worker for a step | look at node3"],
    ),
    "a slow worker of two": (
        Made(workers=[None, used(2.0, 8.0, active=0.99)], steps=[10, 2]),
        ["stragglers"],
        [
            "worker1 took 3.0 times as long as the median worker for a step",
            ", and its threads had no core in at least 78% of its time",
            "look at node1",
            "what else is not known: ",
        ],
    ),
    "others wait for a slow worker": (
        Made(workers=[None] * 3, seconds=[0.5] * 3, waiting=[0.4, 0.4, 0.0], settings=SYNC),
        ["stragglers"],
        [
            "the others waited for 53% of the workers' time",
            "worker2 took 5.0 times as long as the median worker for its part of a step",
            "trainer_replicas_to_aggregate: 2 makes steps without the slowest worker",
        ],
    ),
    "one of two waits": (
        Made(workers=[None] * 2, waiting=[0.4, 0.0], settings=SYNC),
        ["stragglers"],
        ["a smaller trainer_batch_size on node1, or trainer_replication: async"],
    ),
    "the slow worker lacks a core": (
        Made(workers=[None, used(2.0, 8.0, active=0.99)], waiting=[0.4, 0.0], settings=SYNC),
        ["stragglers"],
        ["and its threads had no core in at least 78% of its time;", "| a smaller trainer_batch_size on"],
    ),
    "a host of two without cores, as it was recorded": (
        Made(
            workers=[
                used(0.73, 4.63, cores=2, samples=58, active_samples=14),
                used(0.63, 29.14, cores=2, samples=52, active_samples=45),
            ],
            waiting=[0.391, 0.029],
            settings=SYNC,
        ),
        ["cores", "stragglers"],
        [
            "of the workers' time; only worker1 lacked them; and slow workers: the others waited for 36%",
            "| fewer tasks and other programs on node1, or another host; a smaller",
        ],
    ),
    "a slow link of two, as it was recorded": (
        Made(
            workers=[
                used(2.29, 18.79, cores=2, samples=23, active_samples=20),
                used(0.28, 4.91, cores=2, samples=23, active_samples=2),
            ],
            ps=[used(1.25, 10.9, cores=2, samples=33, active_samples=11)],
            steps=[26, 1],
            bytes=32_000_000,
        ),
        ["stragglers", "network_or_ps"],
        [
            "worker1 took 13.5 times as long as the median worker for a step, and waited for the network and",
            "in at least 73% of its time; and the network or ps0: of a step's 500 ms worker1 alone waited",
            " for 3.2 MB to and from ps0 (51.2 Mbit/s)",
            "| look at the link of node1; trainer_wire_dtype",
        ],
    ),
    "a slow link of two, synchronous, as it was recorded": (
        Made(
            workers=[
                used(0.41, 4.0, cores=2, samples=150, active_samples=11),
                used(0.28, 3.86, cores=2, samples=152, active_samples=26),
            ],
            waiting=[0.458, 0.004],
            steps=[1, 1],
            bytes=32_000_000,
            settings=SYNC,
        ),
        ["stragglers", "network"],
        [
            "worker1 took 6.4 times as long as the median worker for its part of a step, and waited for",
            "| look at the link of node1; trainer_wire_dtype",
        ],
    ),
    "all wait for the ps": (Made(workers=[IDLE, IDLE], waiting=[0.4, 0.4], settings=SYNC), ["network"], []),
}
UNKNOWN: Mapping[str, tuple[Made, str]] = {
    "older records": (Made(workers=[None, None]), "the tasks recorded too little"),
    "one worker without": (Made(workers=[IDLE, None]), "the tasks recorded too little"),
    "records of a part of the time": (
        Made(workers=[IDLE, used(0.5, seconds=SECONDS / 2)]),
        "the tasks recorded too little",
    ),
    "a short run": (Made(seconds=[0.09, 0.09]), "training took 1.8 s, too short to tell"),
    "several cores, no moments, waits unknown": (
        Made(workers=[used(5.0, None)] * 2),
        "the workers had work in 12% to 100% of their time",
    ),
    "no moments": (Made(workers=[BUSY, BUSY]), "the workers had work in 24% to 96% of their time"),
    "GPUs": (Made(workers=[used(1.0, active=0.1)] * 2, gpus=True), "while a GPU computes"),
    "a local run that waits": (
        Made(workers=[used(2.0, 0.0, active=0.2)], settings={"replication": "local"}),
        "the process waited, and no record says for what",
    ),
    "a client": (Made(settings={"replication": "in_graph"}), "the client's waits for other workers"),
}


def told(folder: Path) -> tuple[list[str], str, str]:
    """The causes, what is unknown, and the lines."""
    figure = figures_of(read_run(folder))["held_back"]
    lines = held_back_in_words(figure)
    assert [name for name, _ in lines] == (
        ["held back by", "what helps"] if figure["causes"] else ["held back by"]
    )
    return [cause["cause"] for cause in figure["causes"]], figure["unknown"], " | ".join(dict(lines).values())


@pytest.mark.parametrize("case", list(CASES))
def test_each_cause_is_named_with_its_figures_and_what_helps(case: str, tmp_path: Path) -> None:
    made, causes, words = CASES[case]
    found, _, lines = told(made.folder(tmp_path / "run"))
    assert found == causes, lines
    assert [part for part in words if part not in lines] == [], lines


@pytest.mark.parametrize("case", list(UNKNOWN))
def test_what_the_records_do_not_tell_is_said(case: str, tmp_path: Path) -> None:
    made, why = UNKNOWN[case]
    found, unknown, line = told(made.folder(tmp_path / "run"))
    assert found == []
    assert why in unknown
    assert line == f"not known: {unknown}"


@pytest.fixture
def busy(tmp_path: Path) -> Run:
    """A run that nothing but computing held back."""
    return read_run(Made(workers=[used(9.5, active=0.99)] * 2).folder(tmp_path / "run"))


def causes_of(run: Run, slow: float = 1.0, **faults: float) -> list[Cause]:
    """What held a run back if worker 1 is so much slower, with this price of its faults."""
    price = {"goodput": 1.0, "still_seconds": 0.0, "steps_lost": 0} | faults
    speeds = {"worker0": {"slowdown": 1.0}, "worker1": {"slowdown": slow}} if slow > 1 else {}
    return list(held_back(run, speeds, price).causes)


def test_time_without_steps_is_named_by_what_took_it(busy: Run) -> None:
    lost = causes_of(busy, goodput=0.6, still_seconds=7.0, steps_lost=31)
    assert lost[0].cause == "faults"
    assert lost[0].finding == (
        "interruptions: 40% of the workers' time went into no step of the model"
        " (7.0 s without training, 31 steps lost, 0 new starts)"
    )
    [pauses] = causes_of(busy, goodput=0.6)
    assert (pauses.cause, round(pauses.share, 3)) == ("pauses", 0.4)
    told = records(busy.folder, "worker0")
    save = {"event": "checkpointed", "path": "a", "seconds": 3.0, "stopped_seconds": 3.0, "global_step": 9}
    rewrite(busy.folder, "worker0", [*told[:-1], told[-1] | save, told[-1]])
    [saves] = causes_of(read_run(busy.folder), goodput=0.6)
    assert "saves: 40% of the workers' time" in saves.finding
    assert "(1 save took 3.0 s)" in saves.finding
    assert saves.helps == "a longer trainer_checkpoint_interval_seconds"
    assert [of.cause for of in causes_of(busy, goodput=0.81)] == ["compute"]


@pytest.mark.parametrize("how", ["a new process", "a broken session", "no ending"])
def test_an_interruption_shows_in_the_records(busy: Run, how: str) -> None:
    told = records(busy.folder, "worker1")
    changed = {
        "a new process": [told[0] | {"pid": 7}, *told],
        "a broken session": [*told[:2], told[1] | {"event": "recovering", "reason": "gone"}, *told[2:]],
        "no ending": told[:-1],
    }
    rewrite(busy.folder, "worker1", changed[how])
    [cause] = causes_of(read_run(busy.folder), goodput=0.6)
    assert cause.cause == "faults"
    assert ("worker1 left no ending" in cause.finding) is (how == "no ending")


def test_a_second_cause_is_named_only_if_it_is_near(busy: Run) -> None:
    # Half of one of two workers' time, a quarter of all.
    assert [of.cause for of in causes_of(busy, 2.0, goodput=0.5)] == ["pauses", "stragglers"]
    assert [of.cause for of in causes_of(busy, 2.0, goodput=0.49)] == ["pauses"]


def test_the_bytes_of_another_part_of_the_run_are_not_those_of_its_steps(tmp_path: Path) -> None:
    folder = Made(bytes=GBIT).folder(tmp_path / "run")
    assert "MB" in told(folder)[2]
    again = records(folder, "worker1")
    rewrite(folder, "worker1", [again[0] | {"pid": 7}, *again])
    assert "what travels" in told(folder)[2]


def test_what_a_program_used_is_not_known(tmp_path: Path) -> None:
    folder = Made().folder(tmp_path / "run")
    ask_for(folder, program={"release": "x", "file": "main.py", "arguments": [], "flags": True})
    assert told(folder)[1] == "programs do not record what their processes use"


def test_a_local_run_waits_for_nobody(tmp_path: Path) -> None:
    made = Made(workers=[used(9.5, active=0.99)], settings={"replication": "local"})
    causes, _, lines = told(made.folder(tmp_path / "run"))
    assert causes == ["compute"]
    assert lines.endswith("workers (trainer_replication: async), or GPUs")


def test_a_client_and_its_server_work_in_turns(tmp_path: Path) -> None:
    """The process that takes the steps waits for its server, which computes them."""
    folder = Made(workers=[used(0.5, active=0.02)], settings={"existing_servers": True}).folder(
        tmp_path / "run"
    )
    assert told(folder)[1].startswith("the tasks recorded too little")
    server = [
        record | {"job": "server"} for record in records(folder, "worker0") if record["event"] != "step"
    ]
    place = next(number for number, record in enumerate(server) if record["event"] == "resources")
    server[place] |= used(9.0, active=0.96)
    (folder / "events" / "server0.jsonl").write_text("".join(json.dumps(record) + "\n" for record in server))
    time = time_spent(read_run(folder))
    assert time is not None
    assert time.cpu_seconds == pytest.approx(9.5 / STEPS)
    assert time.elsewhere.least < 0.05


@pytest.mark.parametrize(
    "hostile",
    [
        {"seconds": math.nan},
        {"seconds": 0.0},
        {"seconds": -1.0},
        {"seconds": 1e300},
        {"cpu_seconds": -0.1},
        {"cpu_seconds": math.inf},
        {"cpu_seconds": 1000.0},
        {"cores": 0},
        {"cores": -4},
        {"cores": 2**62},
        {"samples": 5, "active_samples": 6},
        {"samples": -5, "active_samples": -6},
        {"samples": 2**62, "active_samples": 2**62},
        {"core_wait_seconds": -1.0},
        {"core_wait_seconds": math.nan},
        {"core_wait_seconds": 1e300},
    ],
    ids=str,
)
def test_numbers_that_cannot_be_are_as_good_as_none(hostile: Fields, tmp_path: Path) -> None:
    folder = Made(workers=[IDLE, IDLE | hostile]).folder(tmp_path / "run")
    assert told(folder)[1].startswith("the tasks recorded too little")


def test_no_numbers_make_it_fail(tmp_path: Path) -> None:
    """Whatever tasks claim of their steps and their use: there is an answer, and JSON can hold it."""
    chance = random.Random(1)
    strange = [math.nan, math.inf, -1, 0, 1e-300, 1e300, 2**62, -(2**62), 0.5, 3, 400]
    folder = Made(bytes=GBIT).folder(tmp_path / "run")
    whole = {task: records(folder, task) for task in ("ps0", "worker0", "worker1")}
    numbers = {
        "step": ["seconds", "waiting_seconds"],
        "resources": ["seconds", "cpu_seconds", "core_wait_seconds"],
    }
    counts = {
        "step": ["steps", "examples", "local_step"],
        "resources": ["cores", "samples", "active_samples"],
    }
    for _ in range(20):
        for task, of_task in whole.items():
            changed = []
            for record in of_task:
                event = record["event"]
                numeric = {name: chance.choice(strange) for name in numbers.get(event, [])}
                whole_numbers = [value for value in strange if isinstance(value, int)]
                integers = {name: chance.choice(whole_numbers) for name in counts.get(event, [])}
                every = numeric | integers
                few = chance.sample(list(every), k=min(len(every), chance.randrange(3)))
                changed.append(record | {name: every[name] for name in few})
            rewrite(folder, task, changed)
        figure = figures_of(read_run(folder))["held_back"]
        assert all(0 <= cause["share"] <= 1 for cause in figure["causes"])
        assert held_back_in_words(figure)
        json.dumps(figure, allow_nan=False)


def test_the_active_time_lies_between_all_bounds() -> None:
    unknown = Use(10.0, 4.0, None, 2)
    assert unknown.active_in(10.0) == Span(0.2, 1.0)
    assert replace(unknown, core_wait_seconds=2.0).active_in(10.0).most == pytest.approx(0.6)
    sampled = replace(unknown, samples=10_000, active_samples=5_000).active_in(10.0)
    assert sampled.least == pytest.approx(0.49, abs=1e-3)
    assert sampled.most == pytest.approx(0.51, abs=1e-3)
    # A ps serves longer than the workers train, and has its work in their time.
    longer = replace(unknown, seconds=40.0, samples=10_000, active_samples=1_000)
    assert longer.active_in(10.0).least == pytest.approx(0.376, abs=1e-3)
    # A few moments say little, and all of them together not that it was always active.
    assert replace(unknown, samples=4, active_samples=4).active_in(10.0).least == pytest.approx(0.5)
    # The bounds that follow from times are certain, the sample is not.
    assert replace(unknown, samples=10_000).active_in(10.0).least == pytest.approx(0.2)
    assert replace(unknown, core_wait_seconds=0.0, samples=9, active_samples=9).active_in(10.0).most == 0.4
