"""The tasks that a host is asked to run, as `trainer_ps_tasks` and `trainer_worker_tasks` say it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from trainer.contract.rules import Rule, SettingProblem, SettingsError, convert_all, integer
from trainer.contract.settings import PER_HOST

_COUNT = integer(1, 1024)

# Keys that people try, and what to say instead of the closest one.
_NOT_OFFERED = {
    "ps": {"gpu": "write gpus, a list such as [0]", "batch_size": "a ps takes no steps"},
    "worker": {"gpu": "write gpus, a list such as [0]"},
}


@dataclass(frozen=True)
class AskedTask:
    """One task of a host. What is None or missing follows from the host's variables and the other tasks.

    `gpus` as in the plan; `settings` holds the task's own values of the settings in PER_HOST.
    """

    index: int | None = None
    port: int | None = None
    gpus: tuple[int, ...] | None = None
    settings: Mapping[str, object] = field(default_factory=dict)


def tasks_rule(job: str, keys: Mapping[str, Rule]) -> Rule:
    """Return the rule for the list of a host's tasks of a job, or for their number.

    `keys` has the rule of each key that a task may have. What the rule converts is a tuple of AskedTask; the
    SettingsError that it raises names each part that is wrong, such as [1].port.
    """

    def known_keys(key: str) -> str:
        close = get_close_matches(key, keys, n=1)
        hint = _NOT_OFFERED[job].get(key) or (f"did you mean {close[0]}?" if close else "")
        return f"only {', '.join(keys)} in a task{f' ({hint})' if hint else ''}"

    def convert(value: object) -> tuple[AskedTask, ...]:
        if not isinstance(value, Sequence) or isinstance(value, str):
            count: Any = _COUNT.convert(value)
            return (AskedTask(),) * int(count)
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
            task, wrong = convert_all(given, keys, known_keys, f"{name}.")
            problems += wrong
            own = {key: task.pop(key) for key in PER_HOST & task.keys()}
            tasks.append(AskedTask(**task, settings=own))
        if problems:
            raise SettingsError(problems)
        return tuple(tasks)

    expected = f"{_COUNT.expected}, or a list with a mapping for each task, of {', '.join(keys)}"
    return Rule(expected, convert)
