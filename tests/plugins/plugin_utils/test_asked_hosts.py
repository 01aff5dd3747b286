"""Hosts that never answer, among hosts that do."""

import subprocess
import sys

import pytest

from plugins.plugin_utils.asked_hosts import results_in_time
from tests.repository import ROOT

A_HOST_HANGS = """
from threading import Event
from plugins.plugin_utils.asked_hosts import results_in_time
print(results_in_time(lambda host: Event().wait() if host == "evil" else host.upper(), HOSTS, AT_ONCE, 3.0))
"""


def answered(hosts: list[str], at_once: int) -> str:
    """Return what a process of its own prints, which ends although a host never answers."""
    program = A_HOST_HANGS.replace("HOSTS", repr(hosts)).replace("AT_ONCE", str(at_once))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


def test_a_host_that_never_answers_delays_neither_the_answers_of_others_nor_the_end_of_the_process() -> None:
    assert answered(["a", "evil", "b", "c"], 2) == "{'a': 'A', 'b': 'B', 'c': 'C'}\n"


def test_what_a_call_raises_is_raised_here() -> None:
    with pytest.raises(ValueError, match="'x'"):
        results_in_time(int, ["1", "x"], 1, 60.0)
