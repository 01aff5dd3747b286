"""Runs a module on many hosts at once, from one action. A host without an answer gets a reason instead."""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from textwrap import shorten
from typing import Any, TypeVar

from ansible.errors import AnsibleError

from .actions import HostAction
from .reaching import ask

# Options of ssh with which a host that is down delays the answer no longer than ssh's own timeout.
PATIENCE = {"reconnection_retries": 0}
# A host must answer within so many seconds; even a busy host can.
ANSWER_SECONDS = 120.0

AnswerOrProblem = tuple[Mapping[str, Any], str]
T = TypeVar("T")


def ask_hosts(
    action: HostAction,
    module: str,
    arguments: Mapping[str, Mapping[str, Any]],
    ask_host: Callable[[HostAction, str, Mapping[str, Any]], AnswerOrProblem] = ask,
    seconds: float = ANSWER_SECONDS,
) -> dict[str, dict[str, Any]]:
    """Run a module on hosts; return {host: its answer, with `problem`}, in the order of `arguments`.

    `arguments` is {host: arguments of the module}. `problem` is "" if the host answered; else it is the
    reason in words, and there is no other field. A module that fails is a problem, too (`ask`). As many hosts
    as Ansible has forks are asked at the same time, by `ask_host`; each has `seconds` to answer.
    """

    def answer(host: str) -> dict[str, Any]:
        there = theirs[host]
        found, problem = ({}, there) if isinstance(there, str) else ask_host(there, module, arguments[host])
        return {**found, "problem": problem}

    theirs = {host: _action_or_problem(action, host) for host in arguments}
    answers = results_in_time(answer, arguments, int(action.variables["ansible_forks"]), seconds)
    return {host: answers.get(host, {"problem": no_answer(module, seconds)}) for host in arguments}


def results_in_time(
    call: Callable[[str], T], hosts: Iterable[str], at_once: int, seconds: float
) -> dict[str, T]:
    """Return {host: result of `call(host)`}, without the hosts whose call takes longer than `seconds`.

    Groups of `at_once` hosts are called one after the other, the hosts of a group at the same time. An error
    in a call is raised here. A call that hangs does not keep this process from ending.
    """
    returned: dict[str, T] = {}
    remaining = list(hosts)
    while remaining:
        some, remaining = remaining[:at_once], remaining[at_once:]
        calls = {host: _call_in_thread(call, host) for host in some}
        wait(calls.values(), seconds)
        returned |= {host: future.result() for host, future in calls.items() if future.done()}
    return returned


def no_answer(module: str, seconds: float) -> str:
    """Return the problem of a host that did not answer in time, in words."""
    return f"it did not answer the module {module} within {seconds:.0f} s"


def _call_in_thread(call: Callable[[str], T], host: str) -> Future[T]:
    future = Future[T]()

    def run() -> None:
        try:
            future.set_result(call(host))
        except BaseException as error:
            future.set_exception(error)

    # The threads of an executor would be awaited at the end of this process.
    threading.Thread(target=run, daemon=True).start()
    return future


def _action_or_problem(action: HostAction, host: str) -> HostAction | str:
    """Return the action connected to a host; a text if the host's variables permit no connection."""
    try:
        return action.on(host, PATIENCE)
    except AnsibleError as error:
        return shorten(str(error), 300)
