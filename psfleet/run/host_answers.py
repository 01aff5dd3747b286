"""What modules answer on hosts, looked at before anything is made of it: a host may say whatever it likes.

An answer that lacks a field, or has one of another kind, is none.
"""

from collections.abc import Callable, Mapping
from typing import Any

from trainer.contract.plan import JOBS, ClusterPlan
from trainer.contract.records import EVALUATOR
from trainer.contract.run_tasks import SERVER
from trainer.contract.settings import as_given
from trainer.host.task_traces import MOST_BYTES, number


class UnusableError(ValueError):
    """What a host answered is none of what the module can have answered."""


# Of tasks and checks far more than any host has, and of characters more than its modules read of a file.
_MOST_ENTRIES, _MOST_CHARACTERS = 4096, 2 * MOST_BYTES


def _text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MOST_CHARACTERS


def _switch(value: object) -> bool:
    return isinstance(value, bool)


def _moment(value: object) -> bool:
    return number(value) is not None


def _figure(value: object) -> bool:
    return value is None or _moment(value)


def _count(value: object) -> bool:
    return isinstance(value, int) and (number(value) or -value) >= 0


def _object(value: object) -> bool:
    return isinstance(value, dict)


def _figures(value: object) -> bool:
    return isinstance(value, dict) and all(map(_figure, value.values()))


def _texts(value: object) -> bool:
    return isinstance(value, list) and len(value) <= _MOST_ENTRIES and all(map(_text, value))


def _objects(value: object) -> bool:
    return isinstance(value, list) and len(value) <= _MOST_ENTRIES and all(map(_object, value))


# What a field has to be -> the names of the fields.
_Fields = Mapping[Callable[[object], bool], str]
_ANSWERS: Mapping[str, _Fields] = {
    "trainer_tasks": {
        **{_object: "deployed", _text: "tensorflow unfenced", _switch: "lacks_cuda"},
        **{_objects: "tasks", _texts: "stopped"},
    },
    "host_doctor": {_objects: "checks", _texts: "alive", _text: "deployed", _moment: "began ended"},
    "run_archive": {_text: "path", _count: "size", _texts: "left_out"},
    "ssh_identity": {_text: "user_key host_key", _texts: "addresses"},
}
_CHECK: _Fields = {_text: "name state found remedy task"}
_TASK: _Fields = {
    **{_text: "name job state run_id phase ended_by reason", _count: "index exit_code restarts pid"},
    **{_switch: "alive failed", _figure: "bytes_received bytes_sent"},
}
_DETAILS: _Fields = {
    _text: "result finished log log_end",
    _figure: "since_seconds cpu_seconds memory_bytes last_step_age_seconds",
    _figures: "last_step",
    _object: "progress",
}


def checked(module: str, answer: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a module (a name without its collection) has answered to these arguments.

    A plan of `trainer_tasks` that is none counts as not deployed. Raises UnusableError saying what is wrong.
    """
    _require(answer, _ANSWERS.get(module, {}))
    if module == "host_doctor":
        for place, check in enumerate(answer["checks"]):
            _require(check, _CHECK, f"checks[{place}].")
    if module != "trainer_tasks":
        return dict(answer)
    asked = [f"{task['job']}{task['index']}" for task in arguments["tasks"]]
    for place, task in enumerate(answer["tasks"]):
        _require(task, _TASK, f"tasks[{place}].")
        _require(task, _DETAILS if arguments.get("details") else {}, f"tasks[{place}].")
        known = (
            task["job"] in {*JOBS, SERVER, EVALUATOR} if arguments.get("others") else task["name"] in asked
        )
        if not known or task["name"] != f"{task['job']}{task['index']}":
            raise UnusableError(f"tasks[{place}].name is {as_given(task['name'])}, of which nobody asked")
    try:
        deployed = ClusterPlan.from_json(answer["deployed"]).to_json()
    except ValueError:
        deployed = {}
    return {**answer, "deployed": deployed}


def _require(content: Mapping[str, Any], fields: _Fields, prefix: str = "") -> None:
    for fits, names in fields.items():
        for name in names.split():
            if name not in content:
                raise UnusableError(f"{prefix}{name} is missing")
            if not fits(content[name]):
                raise UnusableError(f"{prefix}{name} is {as_given(content[name])}, which it cannot be")
