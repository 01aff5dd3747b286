"""How deploy.yml refuses a host that cannot be part of the cluster."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from plugins.module_utils.checks.host_checks import HostNeeds, host_checks
from plugins.module_utils.facts import host_requirements
from plugins.module_utils.facts.host_facts import Interpreter, read_host_facts
from plugins.module_utils.facts.host_requirements import refusal
from plugins.module_utils.systems import read_systems
from tests.plugins.module_utils.described import DESCRIBED
from tests.plugins.module_utils.recorded_hosts import DEBIAN_12, ROCKY_9
from tests.plugins.modules.module_run import fact_of

KNOWN = read_systems(DESCRIBED)


def test_a_refused_host_gets_all_reasons_and_the_supported_systems(tmp_path: Path) -> None:
    facts = read_host_facts(ROCKY_9.lay_out(tmp_path), "x86_64")
    message = refusal("node3", facts.distribution.name, host_checks(facts, HostNeeds(tasks=79), KNOWN), KNOWN)
    assert message.startswith(
        "node3 runs Rocky Linux 9.5 (Blue Onyx) and cannot be part of the cluster:\n1. Rocky Linux 9.5"
    )
    for reason in ("is not supported", "it has Python 3.9", "20.00 GiB for 79 tasks are needed"):
        assert reason in message
    assert "Debian 12 and 13, Ubuntu 22.04 and 24.04 on x86_64" in message
    assert "\nNothing was changed there. Mend the host or take it out of the inventory." in message


def test_a_supported_host_is_not_refused(tmp_path: Path) -> None:
    facts = read_host_facts(DEBIAN_12.lay_out(tmp_path), "x86_64")
    assert refusal("node1", facts.distribution.name, host_checks(facts, HostNeeds(), KNOWN), KNOWN) == ""


def test_a_supported_host_answers_its_environment_unless_its_clock_or_account_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = read_host_facts(DEBIAN_12.lay_out(tmp_path), "x86_64")
    facts = replace(facts, pythons=(Interpreter("/usr/bin/python3.11", "3.11"),))
    monkeypatch.setattr(host_requirements, "read_host_facts", lambda: facts)
    program = {"key": "0" * 12, "tensorflow": "2.15.1", "pythons": ["3.11"], "variable": "x"}
    answer = fact_of("requirements", host="node1", now=time.time() - 3599, programs=[program])
    assert answer["programs"] == {"0" * 12: "cpu-python3.11-x86_64-tensorflow2.15.1"}
    assert answer["environment"] == "cpu-python3.11-x86_64"
    assert answer["python"] == "/usr/bin/python3.11"
    assert answer["system"]["sshd_service"] == "ssh"
    accounts = {"daemon": "trainer_user"}
    answer = fact_of("requirements", host="node1", now=time.time() + 3700, accounts=accounts)
    assert "\n1. trainer_user is daemon, an account" in answer["msg"]
    assert "\n2. 61 min behind the controller's clock (give or take 60 s): SSH certificates" in answer["msg"]
    assert "timedatectl set-ntp true\nNothing was changed there." in answer["msg"]
