"""The end of a program's tasks that only serve, and for whose end the lead would wait in vain."""

import shlex
from collections.abc import Mapping
from typing import Any

from trainer.host.task_units import ONLY_SERVES, unit_name


def end_if_it_only_serves(task: Mapping[str, Any]) -> str:
    """Return the command that stops a task if its unit still says that it only serves; else it fails."""
    unit = unit_name(task["job"], task["index"])
    says = f"StatusText={ONLY_SERVES}"
    still = f'test "$(systemctl show --property=StatusText {unit})" = {shlex.quote(says)}'
    return f"{still} && systemctl --no-block stop {unit}"
