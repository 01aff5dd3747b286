"""Ends tasks of a program that only serve, because the lead would wait for their end in vain."""

import shlex
from collections.abc import Mapping
from typing import Any

from trainer.host.task_units import ONLY_SERVES, unit_name


def stop_serving_command(task: Mapping[str, Any]) -> str:
    """Return the shell command that stops the unit of a task on its host if the task only serves.

    The command fails, and stops nothing, unless the status text of the unit says that the task only serves.
    It does not wait until the unit has stopped.
    """
    unit = unit_name(task["job"], task["index"])
    says = f"StatusText={ONLY_SERVES}"
    still = f'test "$(systemctl show --property=StatusText {unit})" = {shlex.quote(says)}'
    return f"{still} && systemctl --no-block stop {unit}"
