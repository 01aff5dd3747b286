"""The tasks that `trainer_ps_tasks` and `trainer_worker_tasks` request for a host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from trainer.contract.rules import Rule, SettingProblem, SettingsError, convert_all, integer
from trainer.contract.settings import PER_HOST

_COUNT = integer(1, 1024)

# {job: {key that people try: advice, which replaces the closest known key}}
_NOT_OFFERED = {
    "ps": {"gpu": "write gpus, a list such as [0]", "batch_size": "a ps takes no steps"},
    "worker": {"gpu": "write gpus, a list such as [0]"},
}


@dataclass(frozen=True)
class RequestedTask:
    """One requested task of a host; a field that is None follows from the host's variables.

    `gpus` are numbers as in the plan; `settings` are the task's own values of the settings in PER_HOST.
    """

    index: int | None = None
    port: int | None = None
    gpus: tuple[int, ...] | None = None
    settings: Mapping[str, object] = field(default_factory=dict)


def tasks_rule(job: str, keys: Mapping[str, Rule]) -> Rule:
    """Return the rule for `trainer_<job>_tasks`: a list of a host's tasks, or their number.

    `keys` is {key that a task may have: its rule}. The rule converts a value to a tuple of RequestedTask; an
    empty list is invalid. The SettingsError that it raises names each wrong part, such as [1].port.
    """

    def expected_keys(key: str) -> str:
        close = get_close_matches(key, keys, n=1)
        hint = _NOT_OFFERED[job].get(key) or (f"did you mean {close[0]}?" if close else "")
        return f"only {', '.join(keys)} in a task{f' ({hint})' if hint else ''}"

    def convert(value: object) -> tuple[RequestedTask, ...]:
        if not isinstance(value, Sequence) or isinstance(value, str):
            count: Any = _COUNT.convert(value)
            return (RequestedTask(),) * int(count)
        if not value:
            raise ValueError(value)
        problems = []
        tasks = []
        for position, given in enumerate(value):
            name = f"[{position}]"
            if not isinstance(given, Mapping):
                expected = f"a mapping of {', '.join(keys)}, or {{}} for a task like its host"
                problems.append(SettingProblem(name, given, expected))
                continue
            task, wrong = convert_all(given, keys, expected_keys, f"{name}.")
            problems += wrong
            own = {key: task.pop(key) for key in PER_HOST & task.keys()}
            tasks.append(RequestedTask(**task, settings=own))
        if problems:
            raise SettingsError(problems)
        return tuple(tasks)

    expected = f"{_COUNT.expected}, or a list with a mapping for each task, of {', '.join(keys)}"
    return Rule(expected, convert)
