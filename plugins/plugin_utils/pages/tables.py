"""Shows the hosts' answers as a table."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from psfleet.watch.console import show

from ..actions import HostAction


def show_table(
    action: HostAction,
    draw: Callable[..., Iterable[Any]],
    failure: str,
    answers: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Show the table that `draw` yields, and return the action's answer, a failure if `failure` is not "".

    The answer has `problems`, {host: why it gave no answer, "" if it did}; the recap counts these. `answers`
    is {host: its answer, with `problem`}.
    """
    shown = show(draw, failure, action.variables["ansible_inventory_sources"])
    return {**shown, "problems": {host: str(answer["problem"]) for host, answer in answers.items()}}
