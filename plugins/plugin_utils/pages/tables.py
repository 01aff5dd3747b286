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
    """Show the table that `draw` yields, and return the action's answer; it fails if `failure` is not "".

    Its `problems` is {host: why it gave no answer, "" if it did}; the recap counts these.
    """
    shown = show(draw, failure, action.variables["ansible_inventory_sources"])
    return {**shown, "problems": {host: str(answer["problem"]) for host, answer in answers.items()}}
