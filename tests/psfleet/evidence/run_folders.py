"""Run folders of real tasks on loopback, and ways to damage a copy of one."""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from psfleet.evidence.reading import read_run
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.verdict import Verdict, judge_run
from tests.trainer.forked import ForkedProcess
from tests.trainer.processes import FOR_SHORT_RUNS, PROGRAM, Cluster
from trainer.contract.exit_codes import FINISHED
from trainer.contract.plan import JOBS, ClusterPlan, Job, PlannedTask
from trainer.contract.settings import TrainingSettings

RUN_ID = "test"  # of all runs of `Cluster`
RELEASE = "release-1"
Record = dict[str, Any]
# The checks that a worker fails which trained through a ps of its own.
UNSHARED = frozenset(
    {
        "same_parameter_servers",
        "workers_met",
        "contributions_add_up",
        "fair_shares",
        "steps_interleave",
        "steps_accounted",
    }
)


def plan_of(*tasks: tuple[Job, str]) -> ClusterPlan:
    """A plan of these tasks (job and address), each on a host of its own."""
    indices = dict.fromkeys(JOBS, 0)
    planned: list[PlannedTask] = []
    for job, target in tasks:
        address, port = target.split(":")
        planned.append(PlannedTask(job, indices[job], f"host{len(planned)}", address, int(port)))
        indices[job] += 1
    return ClusterPlan("test", tuple(planned))


def train(
    folder: Path,
    workers: int,
    flags: Sequence[str],
    during: Callable[[Cluster], None] | None = None,
    ps: int = 1,
    *,
    programs: Mapping[str, Sequence[str]] | None = None,
    exit_code: int = FINISHED,
    lost: str = "",
) -> Path:
    """Train on loopback until all tasks have ended by themselves, evaluate, and return the run's folder.

    `programs` has the tasks that run another program than `-m trainer` at first, as `Cluster.start` takes it.
    A run that is to end with another `exit_code` of all tasks is not evaluated. The worker `lost` may end
    with any exit code. What each task had on its host, its run directory, stays in `folder`/hosts.
    """
    flags = [*flags, "--steps_per_call=1"] if programs else flags  # whose pace is that of each step
    settings = settings_of(flags)
    alone = settings.replication == "local"
    clients = 0 if not settings.existing_servers else 1 if settings.replication == "in_graph" else workers
    with Cluster(folder / "hosts", ps, workers, flags, servers=range(clients)) as cluster:
        plan = plan_of(
            *(("ps", target) for target in cluster.hosts["ps"]),
            *(("worker", target) for target in cluster.hosts["worker"]),
        )
        before = dict(os.environ)
        os.environ.update(PSFLEET_PLAN_HASH=plan.hash, PSFLEET_RELEASE=RELEASE)
        try:
            for task in ["worker0"] if alone else cluster.tasks:
                cluster.start(task, program=(programs or {}).get(task, PROGRAM))
            if during:
                during(cluster)
        finally:
            os.environ.clear()
            os.environ.update(before)
        codes = cluster.wait(seconds=300)
        ended = {code for task, code in codes.items() if task != lost}
        assert ended == {exit_code}, cluster.outputs()
        run = folder / RUN_ID
        (run / "events").mkdir(parents=True)
        write_plan(run, plan, settings.as_dict())
        for task in codes:
            shutil.copy(cluster.directory(task) / "events" / f"{task}.jsonl", run / "events")
        if exit_code == FINISHED:
            evaluate(cluster.directory("worker0"), run)
    return run


def evaluate(chief: Path, run: Path) -> None:
    """Evaluate the final model in the chief's run directory, by a process of its own, for a run's folder."""
    output = chief / "evaluator0.out"
    process = ForkedProcess(["-m", "trainer.evaluator", str(chief)], chief, os.environ, output)
    process.wait(150)
    assert process.poll() == FINISHED, output.read_text()
    shutil.copy(chief / "events" / "evaluator0.jsonl", run / "events")


def settings_of(flags: Sequence[str]) -> TrainingSettings:
    """What tasks of a `Cluster` are asked for with flags such as `--model=linear`."""
    every = (*FOR_SHORT_RUNS, *flags)
    return TrainingSettings.from_mapping(dict(flag.removeprefix("--").split("=", 1) for flag in every))


def write_plan(run: Path, plan: ClusterPlan, training: Mapping[str, object]) -> None:
    (run / "plan.json").write_text(json.dumps(plan.to_json()))
    (run / "settings.json").write_text(json.dumps({"training": training, "program": None}))


def tell_settings(run: Path, /, **training: object) -> None:
    """Let settings.json ask for another training than the one that was done."""
    content = json.loads((run / "settings.json").read_text())
    ask_for(run, training=content["training"] | training)


def ask_for(run: Path, **other: object) -> None:
    """Let settings.json have these fields beside the training."""
    content = json.loads((run / "settings.json").read_text())
    (run / "settings.json").write_text(json.dumps(content | other))


def events(run: Path, task: str) -> Path:
    return run / "events" / f"{task}.jsonl"


def records(run: Path, task: str) -> list[Record]:
    return [json.loads(line) for line in events(run, task).read_text().splitlines()]


def rewrite(run: Path, task: str, changed: Sequence[Record]) -> None:
    events(run, task).write_text("".join(json.dumps(record) + "\n" for record in changed))


def edit(run: Path, /, tasks: str, event: str, **fields: object) -> None:
    """Give every record of this event other fields; `event` "" stands for all, `tasks` may be several."""
    for task in tasks.split():
        changed = [
            record | fields if event in {"", record["event"]} else record for record in records(run, task)
        ]
        rewrite(run, task, changed)


def find_in_the_model(run: Path, /, **fields: object) -> None:
    """Let the chief, and the process that took no part, have found something else in the final model."""
    edit(run, "worker0 evaluator0", "evaluated", **fields)


def meet_again(run: Path, /, task: str, **found: object) -> None:
    """Let a task have passed the barrier twice, the second time with what it `found`."""
    every = records(run, task)
    met = next(number for number, record in enumerate(every) if record["event"] == "peers_ready")
    again = every[met] | {"monotonic": every[met]["monotonic"] + 0.001} | found
    rewrite(run, task, [*every[: met + 1], again, *every[met + 1 :]])


def write(run: Path, name: str, text: str) -> None:
    (run / name).write_text(text)


def remove(run: Path, name: str) -> None:
    (run / name).unlink()


def lose(run: Path, task: str) -> None:
    events(run, task).unlink()


def lose_host(run: Path, *lost: str, success: str | int) -> None:
    """Let the hosts of these tasks have been gone when the run was collected; all others ended well.

    `success` is the run's training_run_success.
    """
    ask_for(run, success=success)
    tasks = [f"{task['job']}{task['index']}" for task in json.loads((run / "plan.json").read_text())["tasks"]]
    well = {"alive": False, "failed": False, "exit_code": FINISHED, "ended_by": "itself"}
    (run / "tasks.json").write_text(json.dumps([well | {"name": task} for task in tasks if task not in lost]))
    for task in lost:
        lose(run, task)


def drop(run: Path, tasks: str, event: str) -> None:
    for task in tasks.split():
        rewrite(run, task, steps_and_others(run, task, event)[1])


def steps_and_others(run: Path, task: str, event: str = "step") -> tuple[list[Record], list[Record]]:
    """The records of an event, which are the windows of steps if not told, and all others."""
    every = records(run, task)
    found = [record for record in every if record["event"] == event]
    return found, [record for record in every if record["event"] != event]


def leave_out(run: Path, tasks: str, fields: str) -> None:
    """Let no record of these tasks have these fields."""
    for task in tasks.split():
        names = set(fields.split())
        left = [{name: record[name] for name in record if name not in names} for record in records(run, task)]
        rewrite(run, task, left)


def fail(run: Path, task: str, reason: str) -> None:
    """Let a task have failed in the end."""
    *every, last = records(run, task)
    rewrite(run, task, [*every, last | {"event": "failed", "class": "program", "reason": reason}])


def begin_with(run: Path, /, tasks: str, **settings: object) -> None:
    """Let tasks have begun with other settings than they did."""
    for task in tasks.split():
        edit(run, task, "started", settings=records(run, task)[0]["settings"] | settings)


def tell_batches(run: Path, push_every: int) -> None:
    """Let both workers have had so many batches to a step."""
    for task in ("worker0", "worker1"):
        told = [
            record | ({"batches": push_every * record["steps"]} if record["event"] == "step" else {})
            for record in records(run, task)
        ]
        rewrite(run, task, told)


def verdict_of(run: Path, /, **settings: object) -> Verdict:
    return judge_run(read_run(run), EvidenceSettings.from_mapping(settings))


def checks(verdict: Verdict, *answers: bool | None) -> set[str]:
    """The names of the checks with one of these answers."""
    return {check.check for check in verdict.checks if check.ok in answers}


def detail(verdict: Verdict, name: str) -> str:
    (found,) = (check.detail for check in verdict.checks if check.check == name)
    return found
