"""Computes the settings of each task: from the inventory for a new run, from its folder for a resumed one."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import PurePosixPath
from typing import Any

from psfleet.inventory.success_policy import ALL_WORKERS, SuccessPolicy
from psfleet.inventory.success_policy import VARIABLE as SUCCESS
from trainer.contract.contradictions import replication_problems
from trainer.contract.model_card import Card
from trainer.contract.model_files import built_in_card, is_model_path, model_name
from trainer.contract.plan import ClusterPlan
from trainer.contract.run_program import RunProgram
from trainer.contract.run_tasks import SERVER, run_tasks
from trainer.contract.settings import FIXED_IN_A_RUN, TrainingSettings

_FIXED_IN_PROGRAM = (("program", "release"), ("program", "name"), ("program_entry", "file"))
_FREE_IN_PROGRAM = {
    f"program_{each.name}": each.name
    for each in fields(RunProgram)
    if each.name not in {"name", "release", "file", "requirements"}
}


def run_program(program: Mapping[str, Any], install_directory: str) -> dict[str, Any] | None:
    """Return the content of program.json for a program's tasks; None if `program` is empty.

    `program` is an element of the fact `cluster_programs`. The `file` of the result is the absolute path of
    the Python file to run, below `install_directory` on the hosts, and `requirements` is the key of the
    program's requirements, "" without any.
    """
    if not program:
        return None
    file = f"{install_directory}/programs/{program['release']}/{program['entry']}"
    key = program["packages"].get("key", "")
    return RunProgram.from_json({**program, "file": file, "requirements": key}).to_json()


def with_requirements_of_today(
    begun: Mapping[str, Any] | None, programs: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return a copy of a run's program, with the key of the requirements that the inventory has for it now.

    The key is "" if it has none now. `begun` is the program that the run began with; None, for a model, gives
    None. `programs` is the fact `cluster_programs`. A program that the inventory lacks keeps its
    requirements.
    """
    if begun is None:
        return None
    of_today = [each["packages"] for each in programs if each["name"] == begun.get("name", "")]
    return {**begun, "requirements": of_today[0].get("key", "")} if of_today else {**begun}


def run_settings(
    plan: ClusterPlan,
    settings: Mapping[str, TrainingSettings],
    program: Mapping[str, Any] | None = None,
    success: SuccessPolicy = ALL_WORKERS,
    card: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the settings of a run, with the keys "cluster", "tasks", "program", "success" and "card".

    `settings` is {name of a task of the plan: its settings}. `cluster` of the result has the chief's
    settings, {setting: value}; `tasks` has {name of a task of the run: its settings}; `program` is what
    `run_program` returned, and `success` the policy. `card` is the card of the user's own model as JSON, None
    for a program and a built-in model.
    """
    cluster = settings[plan.chief.name]
    tasks = run_tasks(plan, cluster, program is not None)
    # A server runs the training steps of its worker.
    of_tasks = {task.name: settings[task.name.replace(SERVER, "worker")] for task in tasks}
    return {
        "cluster": cluster.as_dict(),
        "tasks": {name: of_task.as_dict() for name, of_task in of_tasks.items()},
        "program": program,
        "success": success,
        "card": card if program is None and is_model_path(cluster.model) else None,
    }


def model_card(settings: Mapping[str, Any]) -> Card | None:
    """Return the card of the model that a run trains; None for a program, and for a model that is not known.

    A card in the settings has precedence over the built-in one. `settings` are those of the run, as
    `run_settings` returns them.
    """
    if settings.get("program"):
        return None
    if own := settings.get("card"):
        return Card.from_json(own)
    return built_in_card(str(settings["cluster"].get("model")))


def carried_model(settings: Mapping[str, Any]) -> dict[str, str] | None:
    """Return {"release": .., "file": path on the hosts} of the user's own model; None for any other run.

    `settings` are those of the run, as `run_settings` returns them.
    """
    file = str(settings["cluster"].get("model"))
    if settings.get("program") or not is_model_path(file):
        return None
    return {"release": PurePosixPath(file).parent.name, "file": file}


def resumed_settings(
    plan: ClusterPlan,
    begun: Mapping[str, Any],
    today: Mapping[str, Any],
    chosen: Collection[str],
) -> dict[str, Any]:
    """Return the settings of a resumed run: those it began with, updated by those that -e sets.

    `begun` and `today` are objects as `run_settings` returns them: of the run's folder, and of the inventory.
    `chosen` has the names of the settings that -e sets, without "trainer_"; their values are in `today`.
    Raises ValueError if such a setting must not change during a run, or if an older release of psfleet or
    other workers make resuming impossible; SettingsError if the settings that the run began with are damaged.
    """
    program = _resumed_program(begun.get("program"), today.get("program"), chosen)
    if any("flags" in settings for settings in begun["tasks"].values()):
        raise ValueError("an older release of psfleet began it; begin a new run, without run_id")
    cluster = TrainingSettings.from_mapping(begun["cluster"])
    workers = len(plan.tasks_of("worker"))
    problems = {} if program else replication_problems(begun["cluster"], workers, card=model_card(begun))
    if problem := next(iter(problems.values()), ""):
        raise ValueError(problem)
    was, now = cluster.as_dict(), today["cluster"]
    for name in FIXED_IN_A_RUN:
        if name in chosen and was[name] != now[name]:
            what = f"trains {was[name]}" if name == "model" else f"began with {name} {was[name]}"
            raise ValueError(f"it {what}, and a run keeps its {name}; trainer_{name} is {now[name]!r}")

    def task_settings(task: str) -> TrainingSettings:
        values = begun["tasks"].get(task, begun["cluster"])
        # The command line sets a value for all tasks, also for those that the inventory no longer has.
        new = today["tasks"].get(task, today["cluster"])
        chosen_values = {name: new[name] for name in chosen if name in new}
        return TrainingSettings.from_mapping({**values, **chosen_values})

    success = (today if SUCCESS in chosen else begun).get("success", ALL_WORKERS)
    of_tasks = {task.name: task_settings(task.name) for task in plan.tasks}
    return run_settings(plan, of_tasks, program, success, begun.get("card"))


def can_resize(settings: Mapping[str, Any]) -> bool:
    """Return whether a run with these settings can go on with other numbers of ps and workers.

    True for an asynchronous or synchronous model whose workers have no parts of their own; False for a
    program.
    """
    training = settings["cluster"]
    card = model_card(settings)
    is_shared = training.get("replication") in {"async", "sync"} and not (card and card.own_parts)
    return is_shared and not settings.get("program")


def _resumed_program(
    begun: Mapping[str, Any] | None, today: Mapping[str, Any] | None, chosen: Collection[str]
) -> dict[str, Any] | None:
    """Return the program of a resumed run, updated by what -e sets; None if the run trains a model.

    `begun` and `today` are the programs of the run and of the inventory, None without one. Raises ValueError
    if -e names another program.
    """
    begun = RunProgram.from_json(begun).to_json() if begun else None
    was, now = begun or {}, today or {}
    if any(name in chosen and was.get(key) != now.get(key) for name, key in _FIXED_IN_PROGRAM):
        variable = "program" if now.get("name") else "trainer_program"
        raise ValueError(
            f"it runs {_program_name(begun)}, and a run keeps its program; "
            f"{variable} is {_program_name(today)} now: begin a new run, without run_id"
        )
    if begun is None:
        return None
    new = {key: today[key] for name, key in _FREE_IN_PROGRAM.items() if today and name in chosen}
    return {**begun, **new}


def _program_name(program: Mapping[str, Any] | None) -> str:
    if program is None:
        return "no program of the user's"
    named = f"{program['name']}, " if program.get("name") else ""
    return f"{named}{program['file'].rpartition('/')[2]} (release {program['release']})"


def older_model_note(begun: Mapping[str, Any], today: Mapping[str, Any]) -> str:
    """Return which release of the user's model a resumed run trains, if the inventory has another; else "".

    `begun` and `today` are the settings that the run began with, and those of the inventory. "" also if one
    of them has no model of the user's own, or if their models have different names.
    """
    was, now = carried_model(begun), carried_model(today)
    if not was or not now or was["release"] == now["release"] or _name_of(was) != _name_of(now):
        return ""
    newer = f"the inventory has release {now['release']}, which a new run trains, without run_id"
    return f"{_name_of(was)} (release {was['release']}), the model that it began with; {newer}"


def _name_of(model: Mapping[str, str]) -> str:
    return model_name(model["file"])


def older_program_note(begun: Mapping[str, Any] | None, programs: Sequence[Mapping[str, Any]]) -> str:
    """Return which release of its program a resumed run runs, if the inventory has another; else "".

    `begun` is the program that the run began with, `programs` is the fact `cluster_programs`. "" also if the
    run has no program, or if the inventory lacks it.
    """
    now = next((each["release"] for each in programs if begun and each["name"] == begun.get("name", "")), "")
    if not begun or now in {"", begun["release"]}:
        return ""
    newer = f"the inventory has release {now}, which a new run trains, without run_id"
    return f"{_program_name(begun)}, the program that it began with; {newer}"
