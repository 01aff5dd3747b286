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
    """Print the table that `draw` yields; return the action's answer, which fails unless `failure` is "".

    `failure` is the message. The answer has `problems`, {host: why it did not answer, "" if it did}, for the
    recap. `answers` is {host: its answer, with the field `problem`}.
    """
    shown = show(draw, failure, action.variables["ansible_inventory_sources"])
    return {**shown, "problems": {host: str(answer["problem"]) for host, answer in answers.items()}}
