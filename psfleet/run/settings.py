"""What each task of a run trains: from the inventory for a new run, from its folder for one that goes on."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

from trainer.contract.plan import ClusterPlan
from trainer.contract.run_program import RunProgram
from trainer.contract.run_tasks import SERVER, run_tasks
from trainer.contract.settings import RULES, TrainingSettings, flags_of

# A ps holds parameters and knows nothing of what is trained, but who takes part, and how.
_OF_PS = (
    "replication",
    "replicas_to_aggregate",
    "existing_servers",
    "threads",
    "gpu_memory_fraction",
    "barrier_deadline_seconds",
)
# What a run's checkpoints, its examples, the counts of its gradients, or its tasks depend on.
_KEPT = ("model", "replication", "replicas_to_aggregate", "existing_servers", "shard_data")
_KEPT_OF_PROGRAM = (("program", "release"), ("program", "name"), ("program_entry", "file"))
_FREE_OF_PROGRAM = {
    f"program_{each.name}": each.name
    for each in fields(RunProgram)
    if each.name not in {"name", "release", "file"}
}


def run_program(program: Mapping[str, Any], install_directory: str) -> dict[str, Any] | None:
    """Return what the hosts are told of a program of the fact `cluster_programs`, None where there is none.

    Its `file` is the absolute path of the file to run, below `install_directory` on the hosts.
    """
    if not program:
        return None
    file = f"{install_directory}/programs/{program['release']}/{program['entry']}"
    return RunProgram.from_json({**program, "file": file}).to_json()


def program_steps(programs: Sequence[Mapping[str, Any]], install_directory: str) -> list[dict[str, Any]]:
    """Return the steps that put programs of the fact `cluster_programs` on a host, each of its files once."""
    sources = {program["release"]: program["source"] for program in programs}
    folder = f"{install_directory}/programs"
    return [
        {
            "name": f"Put the user's program {source} in place",
            "step": "content_release",
            "arguments": {"source": source, "release": release, "folder": folder},
        }
        for release, source in sources.items()
    ]


def run_settings(
    plan: ClusterPlan,
    settings: Mapping[str, TrainingSettings],
    program: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the settings of a run, by those of each task of the plan.

    `cluster` holds the chief's, `tasks` the `values` and `flags` of each task that the run has, by name, and
    `program` what `run_program` returned.
    """
    cluster = settings[plan.chief.name]
    tasks = run_tasks(plan, cluster, program is not None)
    # A server does the work of its worker.
    of_tasks = {task.name: settings[task.name.replace(SERVER, "worker")] for task in tasks}
    return {
        "cluster": cluster.as_dict(),
        "tasks": {
            task.name: _told(of_tasks[task.name], _OF_PS if task.job == "ps" and program is None else RULES)
            for task in tasks
        },
        "program": program,
    }


def resumed_settings(
    plan: ClusterPlan,
    begun: Mapping[str, Any],
    today: Mapping[str, Any],
    chosen: Collection[str],
) -> dict[str, Any]:
    """Return the settings of a run that goes on: those it began with, but for what is chosen anew.

    `begun` and `today` are objects as `run_settings` returns them; `chosen` names the settings that were
    given on the command line. Raises ValueError where that would make it another run, SettingsError where
    what it began with is damaged.
    """
    program = _resumed_program(begun.get("program"), today.get("program"), chosen)
    cluster = TrainingSettings.from_mapping(begun["cluster"])
    was, now = cluster.as_dict(), today["cluster"]
    for name in _KEPT:
        if name in chosen and was[name] != now[name]:
            what = f"trains {was[name]}" if name == "model" else f"began with {name} {was[name]}"
            raise ValueError(f"it {what}, and a run keeps its {name}; trainer_{name} is {now[name]!r}")

    def of(task: str) -> TrainingSettings:
        values = begun["tasks"].get(task, {}).get("values", begun["cluster"])
        # What is given on the command line is given to all tasks, also to those that today's run lacks.
        new = today["tasks"].get(task, {}).get("values", {})
        taken = {name: new.get(name, today["cluster"][name]) for name in chosen if name in today["cluster"]}
        return TrainingSettings.from_mapping({**begun["cluster"], **values, **taken})

    return run_settings(plan, {task.name: of(task.name) for task in plan.tasks}, program)


def _told(settings: TrainingSettings, names: Collection[str]) -> dict[str, Any]:
    """Return the values and flags of a task that is told these settings."""
    values = {name: value for name, value in settings.as_dict().items() if name in names}
    return {"values": values, "flags": " ".join(flags_of(values))}


def _resumed_program(
    begun: Mapping[str, Any] | None, today: Mapping[str, Any] | None, chosen: Collection[str]
) -> dict[str, Any] | None:
    """Return the program of a run that goes on: its own, with the arguments that are chosen anew."""
    begun = RunProgram.from_json(begun).to_json() if begun else None
    was, now = begun or {}, today or {}
    if any(name in chosen and was.get(key) != now.get(key) for name, key in _KEPT_OF_PROGRAM):
        variable = "program" if now.get("name") else "trainer_program"
        raise ValueError(
            f"it runs {_program_name(begun)}, and a run keeps its program; "
            f"{variable} is {_program_name(today)} now"
        )
    if begun is None:
        return None
    new = {key: today[key] for name, key in _FREE_OF_PROGRAM.items() if today and name in chosen}
    return {**begun, **new}


def _program_name(program: Mapping[str, Any] | None) -> str:
    if program is None:
        return "no program of one's own"
    named = f"{program['name']}, " if program.get("name") else ""
    return f"{named}{program['file'].rpartition('/')[2]} (release {program['release']})"
