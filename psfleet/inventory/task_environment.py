"""The rule for `trainer_environment`: environment variables that the user gives to every task of a host."""

import re
from collections.abc import Mapping

from trainer.contract.rules import Rule, SettingProblem, SettingsError, as_given

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# psfleet sets these variables, or its sandbox removes them. The user's value would be ignored, or break the
# task.
_OF_PSFLEET = re.compile(
    r"PSFLEET_.*|TF_CONFIG|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|XLA_FLAGS|HOME|PATH|LD_.*|PYTHON.*"
)
# With these variables, systemd tells a process how to answer, and how the previous process ended.
_OF_SYSTEMD = re.compile(
    r"(?:NOTIFY|WATCHDOG|LISTEN|SYSTEMD|EXIT|SERVICE|MEMORY_PRESSURE|MONITOR|TRIGGER)_.*"
    r"|MAINPID|MANAGERPID|INVOCATION_ID|JOURNAL_STREAM|CREDENTIALS_DIRECTORY"
)
# systemd drops a value with other control characters, or that is not UTF-8; only systemd's journal says so.
_TEXT = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]*")


def _problem(name: str, value: object) -> SettingProblem | None:
    if not _NAME.fullmatch(name):
        expected = "a name of letters, digits and '_', and no digit first"
        return SettingProblem(f"[{as_given(name)}]", value, expected)
    if _OF_PSFLEET.fullmatch(name):
        expected = "no variable of this name: psfleet sets it for each task, or its sandbox removes it"
        return SettingProblem(f".{name}", value, expected)
    if _OF_SYSTEMD.fullmatch(name):
        expected = "no variable of this name: systemd sets it for each process of a task"
        return SettingProblem(f".{name}", value, expected)
    if not isinstance(value, str) or not _TEXT.fullmatch(value):
        return SettingProblem(f".{name}", value, 'a text in quotes, such as "1", of a single line')
    return None


def _to_environment(given: object) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise ValueError(given)
    if problems := [problem for name, value in given.items() if (problem := _problem(str(name), value))]:
        raise SettingsError(problems)
    return {str(name): str(value) for name, value in given.items()}


TASK_ENVIRONMENT = Rule('names and texts, such as {OMP_NUM_THREADS: "4"}', _to_environment)
