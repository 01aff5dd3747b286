"""What hosts answer of themselves and of their tasks, looked at before anything is made of it.

A host may say whatever it likes. An answer that lacks a field, or has one of another kind, is none.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from trainer.contract.plan import JOBS, ClusterPlan
from trainer.contract.records import EVALUATOR
from trainer.contract.run_tasks import SERVER
from trainer.contract.settings import as_given
from trainer.host.task_traces import number

# Far more than any host has; each is a row for people, and a line of systemd's.
_MOST_ENTRIES = 4096
_Kinds = Mapping[str, Callable[[Any], object]]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_word(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and len(value) <= 255


def _is_switch(value: object) -> bool:
    return isinstance(value, bool)


def _is_figure(value: object) -> bool:
    return number(value) is not None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and (number(value) or -value) >= 0


def _is_figure_or_null(value: object) -> bool:
    return value is None or _is_figure(value)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_list(value: object) -> bool:
    return isinstance(value, list) and len(value) <= _MOST_ENTRIES


_TASKS: _Kinds = {"deployed": _is_object, "tensorflow": _is_word, "lacks_cuda": _is_switch, "tasks": _is_list}
_TASK: _Kinds = {
    **dict.fromkeys(("name", "state", "run_id", "phase", "ended_by"), _is_word),
    **dict.fromkeys(("index", "exit_code", "restarts", "pid"), _is_count),
    **dict.fromkeys(("bytes_received", "bytes_sent"), _is_figure_or_null),
    **dict.fromkeys(("alive", "failed"), _is_switch),
    "job": {*JOBS, SERVER, EVALUATOR}.__contains__,
    "reason": _is_text,
}
# What a task has beside these where `details` are asked for.
_DETAILS: _Kinds = {
    **dict.fromkeys(("result", "finished", "log"), _is_word),
    **dict.fromkeys(("since_seconds", "cpu_seconds", "last_step_age_seconds"), _is_figure_or_null),
    "memory_bytes": _is_figure_or_null,
    "log_end": _is_text,
    "last_step": lambda value: _is_object(value) and all(map(_is_figure_or_null, value.values())),
    "progress": _is_object,
}
_DOCTOR: _Kinds = {
    "checks": _is_list,
    "alive": _is_list,
    "deployed": _is_word,
    "began": _is_figure,
    "ended": _is_figure,
}
_CHECK: _Kinds = dict.fromkeys(("name", "state", "found", "remedy", "task"), _is_text)


def tasks_answer(
    answer: Mapping[str, Any], asked: Collection[str] | None = None, *, details: bool = False
) -> dict[str, Any]:
    """Return an answer of the module trainer_tasks; a plan in it that is none counts as not deployed.

    `asked` are the tasks that it was asked for, None where it may tell of others, too. Raises ValueError.
    """
    _require(answer, _TASKS)
    for place, task in enumerate(answer["tasks"]):
        _require(task, {**_TASK, **(_DETAILS if details else {})}, f"tasks[{place}].")
        if task["name"] != f"{task['job']}{task['index']}" or (
            asked is not None and task["name"] not in asked
        ):
            raise ValueError(
                f"tasks[{place}] is {as_given(task['name'])}; expected one that it was asked for"
            )
    try:
        deployed = ClusterPlan.from_json(answer["deployed"]).to_json()
    except ValueError:
        deployed = {}
    return {**answer, "deployed": deployed}


def doctor_answer(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an answer of the module host_doctor. Raises ValueError."""
    _require(answer, _DOCTOR)
    for place, check in enumerate(answer["checks"]):
        _require(check, _CHECK, f"checks[{place}].")
    return answer


def _require(content: object, kinds: _Kinds, prefix: str = "") -> None:
    if not isinstance(content, Mapping):
        raise ValueError(f"{prefix or 'it'} is {as_given(content)}; expected an object")
    for name, is_of_kind in kinds.items():
        if name not in content:
            raise ValueError(f"{prefix}{name} is missing")
        try:
            fits = is_of_kind(content[name])
        except TypeError:  # no value of a set
            fits = False
        if not fits:
            raise ValueError(f"{prefix}{name} is {as_given(content[name])}, which it cannot be")
