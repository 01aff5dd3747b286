"""Runs a step on many hosts at once, from one action. A host without an answer has a reason instead."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from textwrap import shorten
from typing import Any

from ansible.errors import AnsibleError

from .actions import HostAction
from .polled_hosts import action_on
from .reaching import ask

# A host that is down delays the answer no longer than ssh's own timeout.
PATIENCE = {"reconnection_retries": 0}

Asked = tuple[Mapping[str, Any], str]


def ask_hosts(
    action: HostAction,
    step: str,
    arguments: Mapping[str, Mapping[str, Any]],
    ask_host: Callable[[HostAction, str, Mapping[str, Any]], Asked] = ask,
) -> dict[str, dict[str, Any]]:
    """Return each host's answer to the step with its arguments (host -> arguments).

    An answer has `problem`, which is "" if the host answered, and else the reason, alone. As many hosts as
    Ansible has forks are queried at the same time, by `ask_host`.
    """

    def answer(host: str) -> dict[str, Any]:
        there = theirs[host]
        found, problem = ({}, there) if isinstance(there, str) else ask_host(there, step, arguments[host])
        return {**found, "problem": problem}

    theirs = {host: _action_or_problem(action, host) for host in arguments}
    with ThreadPoolExecutor(int(action.variables["ansible_forks"])) as pool:
        return dict(zip(arguments, pool.map(answer, arguments), strict=True))


def _action_or_problem(action: HostAction, host: str) -> HostAction | str:
    """Return the action for a host, or why its variables permit none."""
    try:
        there: HostAction = action_on(action, host, PATIENCE)
        return there
    except AnsibleError as error:
        return shorten(str(error), 300)
