"""Which hosts can be part of a cluster, with which environment, and why others cannot."""

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.checks.host_checks import (
    HostNeeds,
    data_finding,
    host_checks,
    host_environment,
    program_environment,
)
from plugins.module_utils.environments.environment import pythons_of
from plugins.module_utils.facts.host_facts import HostFacts, read_host_facts
from plugins.module_utils.host.check import Check
from tests.plugins.module_utils import recorded_hosts
from tests.plugins.module_utils.described import KNOWN
from tests.plugins.module_utils.recorded_findings import cases
from tests.plugins.module_utils.recorded_hosts import (
    DEBIAN_11,
    DEBIAN_12,
    DEBIAN_13,
    ROCKY_9,
    UBUNTU_2204,
    UBUNTU_2404,
    RecordedHost,
)
from tests.repository import ROOT

FILES = [
    "checks/host_checks",
    "environments/environment",
    "facts/host_facts",
    *(f"host/{name}" for name in ("check", "memory", "whole_files", "wording")),
]
SYSTEM_FILES = [f"systems/{path.stem}" for path in (ROOT / "plugins/module_utils/systems").glob("*.py")]
NAMES = ["system", "processor", "libc", "python", "memory"]


def facts_of(host: RecordedHost, root: Path) -> HostFacts:
    return read_host_facts(host.lay_out(root), host.machine)


def chain_of(case: dict[str, Any], root: Path) -> list[Check]:
    """Return the checks of a recorded host that was changed."""
    host: RecordedHost = replace(getattr(recorded_hosts, case["host"]), **case.get("change", {}))
    return host_checks(facts_of(host, root), HostNeeds(**case.get("asked", {})), KNOWN)


@cases("hosts")
def test_each_recorded_host_gets_its_expected_check_and_remedy(case: dict[str, Any], tmp_path: Path) -> None:
    checks = {check.name: check for check in chain_of(case, tmp_path)}
    assert [*checks] == NAMES
    name, state = case["check"].split()
    found, remedy = checks[name].found.replace(str(tmp_path), ""), checks[name].remedy
    assert (checks[name].state, found, remedy) == (state, case["found"], case.get("remedy", ""))
    assert not [check.name for check in checks.values() if bool(check.remedy) != (check.state != "ok")]


SEVERAL = replace(DEBIAN_11, pythons=["3.9", "3.10", "3.12", "3.14"])  # its own, the first, does not fit


@pytest.mark.parametrize(
    ("host", "asked", "environment"),
    [
        (DEBIAN_12, HostNeeds(), "cpu-python3.11-x86_64"),
        (DEBIAN_12, HostNeeds(cuda_source="system"), "cpu-python3.11-x86_64"),
        (DEBIAN_13, HostNeeds(gpus=True), "gpu-python3.13-x86_64"),
        (UBUNTU_2204, HostNeeds(gpus=True, cuda_source="system"), "gpu-system-python3.10-x86_64"),
        (UBUNTU_2404, HostNeeds(), "cpu-python3.12-x86_64"),
        (replace(DEBIAN_12, machine="aarch64"), HostNeeds(), "cpu-python3.11-aarch64"),
        (replace(DEBIAN_12, pythons=["3.11", "3.12"]), HostNeeds(), "cpu-python3.11-x86_64"),
        (SEVERAL, HostNeeds(), "cpu-python3.12-x86_64"),
        (SEVERAL, HostNeeds("3.10"), "cpu-python3.10-x86_64"),
    ],
)
def test_the_environment_matches_the_hosts_python_processor_and_gpus(
    host: RecordedHost, asked: HostNeeds, environment: str, tmp_path: Path
) -> None:
    facts = facts_of(host, tmp_path)
    found, python = host_environment(facts, asked)
    assert found.name == environment
    assert python.path == f"{tmp_path}/usr/bin/python{found.python}"
    if host in (DEBIAN_13, UBUNTU_2204, UBUNTU_2404):
        assert {check.state for check in host_checks(facts, asked, KNOWN)} == {"ok"}
    with pytest.raises(ValueError, match=r"^package_store_python_version is 3.9; it has Python "):
        host_environment(facts, replace(asked, python_version="3.9"))


def test_a_systemd_that_the_host_was_not_booted_with_does_not_count(tmp_path: Path) -> None:
    root = DEBIAN_12.lay_out(tmp_path)
    (root / "run/systemd/system").rmdir()
    check = host_checks(read_host_facts(root, "x86_64"), HostNeeds(), KNOWN)[NAMES.index("system")]
    assert (check.state, check.found) == ("failed", "it was not booted with systemd")


def test_all_problems_of_a_host_are_reported_at_once(tmp_path: Path) -> None:
    host = replace(ROCKY_9, cpuinfo="pentium", glibc="2.17", mem_total_kb=1000)
    assert {check.state for check in host_checks(facts_of(host, tmp_path), HostNeeds(), KNOWN)} == {"failed"}


@pytest.mark.parametrize("name", [*FILES, *SYSTEM_FILES])
def test_the_code_of_host_checks_parses_with_python_3_8(name: str) -> None:
    """The message for a host with Python 3.8 must name what the host lacks, not a syntax error in `match`."""
    text = (ROOT / "plugins/module_utils" / f"{name}.py").read_text()
    ast.parse(text, feature_version=(3, 8))
    assert "from __future__ import annotations" in text
    assert "strict=" not in text
    assert "removeprefix" not in text


def test_a_data_folder_that_is_missing_or_empty_fails_the_check(tmp_path: Path) -> None:
    assert data_finding([]).state == "skipped"
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    assert data_finding([str(tmp_path)]).state == "ok"
    for lacking, what in (("nowhere", "no"), ("file", "no"), ("empty", "an empty")):
        place = tmp_path / lacking
        found = data_finding([str(tmp_path), str(place)])
        assert (found.state, found.found) == (
            "failed",
            f"trainer_data_dir is {place}, which is {what} folder here",
        )
        assert "trainer_data_source" in found.remedy
    carried = data_finding([str(tmp_path / "empty")], carried=True)
    assert carried.found.startswith(f"there is nothing in {tmp_path}/empty, where deploy.yml brings")


def program_with(tensorflow: str) -> dict[str, Any]:
    """Return the requirements of a program that names this TensorFlow."""
    variable = "trainer_programs.old.requirements"
    return {
        "key": "0" * 12,
        "variable": variable,
        "tensorflow": tensorflow,
        "pythons": pythons_of(tensorflow),
    }


SEVERAL_13 = replace(DEBIAN_13, pythons=["3.13", "3.10", "3.11"])


@pytest.mark.parametrize(
    ("host", "asked", "tensorflow", "environment"),
    [
        (DEBIAN_12, {}, "2.15.1", "cpu-python3.11-x86_64-tensorflow2.15.1"),
        (DEBIAN_12, {"gpus": True}, "2.16.2", "gpu-python3.11-x86_64-tensorflow2.16.2"),
        (DEBIAN_13, {}, "2.21.0", "cpu-python3.13-x86_64"),
        (SEVERAL_13, {}, "2.15.1", "cpu-python3.11-x86_64-tensorflow2.15.1"),
    ],
)
def test_a_program_gets_an_environment_with_a_python_of_its_tensorflow(
    host: RecordedHost, asked: dict[str, Any], tensorflow: str, environment: str, tmp_path: Path
) -> None:
    program = program_with(tensorflow)
    needs = HostNeeds(**asked, programs=[program])
    facts = facts_of(host, tmp_path)
    assert program_environment(facts, needs, program).name == environment
    assert {check.state for check in host_checks(facts, needs, KNOWN) if check.name == "python"} == {"ok"}


@pytest.mark.parametrize(
    ("host", "asked", "tensorflow", "words"),
    [
        (
            DEBIAN_13,
            {},
            "2.15.1",
            "takes TensorFlow 2.15.1, which has wheels for Python 3.10 and 3.11 alone, and it has Python "
            "3.13: install Python 3.10 or 3.11 there, use hosts that have it, or let the program take "
            "TensorFlow 2.20 or newer",
        ),
        (
            DEBIAN_12,
            {"gpus": True},
            "2.13.1",
            "takes TensorFlow 2.13.1: TensorFlow 2.13.1 brings no CUDA: set nvidia_cuda_source: system, or "
            "take 2.14 or newer",
        ),
    ],
)
def test_a_program_whose_tensorflow_has_no_wheel_for_the_host_is_refused(
    host: RecordedHost, asked: dict[str, Any], tensorflow: str, words: str, tmp_path: Path
) -> None:
    program = program_with(tensorflow)
    needs = HostNeeds(**asked, programs=[program])
    facts = facts_of(host, tmp_path)
    (check,) = (check for check in host_checks(facts, needs, KNOWN) if check.name == "python")
    assert check.state == "failed"
    assert f"{check.found}: {check.remedy}" == f"trainer_programs.old.requirements {words}"
    with pytest.raises(ValueError, match="TensorFlow"):
        program_environment(facts, needs, program)
