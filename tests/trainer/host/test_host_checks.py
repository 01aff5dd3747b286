"""Which hosts can be part of a cluster, with which environment, and what is said of the others."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from tests.repository import ROOT
from tests.trainer.host.recorded_hosts import (
    ALL_PROGRAMS,
    ALPINE,
    DEBIAN_11,
    DEBIAN_12,
    DEBIAN_13,
    MINT_22,
    ROCKY_9,
    UBUNTU_2204,
    UBUNTU_2404,
    RecordedHost,
)
from trainer.host.check import Check
from trainer.host.host_checks import Asked, host_chain, host_environment
from trainer.host.host_facts import HostFacts, read_host_facts

NAMES = ["system", "processor", "libc", "python", "memory"]


def facts_of(host: RecordedHost, root: Path) -> HostFacts:
    return read_host_facts(host.lay_out(root), host.machine)


def checks_of(host: RecordedHost, root: Path, asked: Asked | None = None) -> dict[str, Check]:
    checks = host_chain(facts_of(host, root), asked or Asked())
    assert [check.name for check in checks] == NAMES
    assert all(check.remedy for check in checks if check.state in {"failed", "warning"})
    return {check.name: check for check in checks}


@pytest.mark.parametrize(
    ("host", "environment"),
    [
        (DEBIAN_12, "cpu-python3.11-x86_64"),
        (DEBIAN_13, "cpu-python3.13-x86_64"),
        (UBUNTU_2204, "cpu-python3.10-x86_64"),
        (UBUNTU_2404, "cpu-python3.12-x86_64"),
    ],
)
def test_supported_systems_are_well(host: RecordedHost, environment: str, tmp_path: Path) -> None:
    facts = facts_of(host, tmp_path)
    checks = host_chain(facts, Asked())
    assert {check.state for check in checks} == {"ok"}
    assert ("not tested" in checks[NAMES.index("system")].found) == host.os_release.startswith("ubuntu")
    found, python = host_environment(facts, Asked())
    assert found.name == environment
    assert python.path == f"{tmp_path}/usr/bin/python{host.pythons[0]}"


@pytest.mark.parametrize(
    "host",
    [
        MINT_22,
        replace(DEBIAN_13, os_release="debian-sid"),
        # Its backports have this systemd.
        replace(DEBIAN_11, pythons=["3.11"], systemd="252"),
    ],
)
def test_kin_of_supported_systems_are_warned_of_and_not_refused(host: RecordedHost, tmp_path: Path) -> None:
    checks = checks_of(host, tmp_path)
    assert checks.pop("system").state == "warning"
    assert {check.state for check in checks.values()} == {"ok"}


@pytest.mark.parametrize(
    ("host", "check", "found", "remedy"),
    [
        (ROCKY_9, "system", "Rocky Linux 9.5 (Blue Onyx) is of Red Hat's family", "in docs/platforms.md"),
        (ROCKY_9, "python", "Python 3.9", "TensorFlow 2.21.0 has no wheel for Python 3.9"),
        (ALPINE, "system", "Alpine Linux v3.19 is not supported", "use Debian 12 and 13, Ubuntu"),
        (ALPINE, "system", "not booted with systemd; it lacks systemctl", "boot the host with systemd"),
        (ALPINE, "libc", "musl", "glibc 2.27 or newer"),
        (DEBIAN_11, "python", "Python 3.9", "install one of Python 3.10 to 3.13"),
        (replace(DEBIAN_13, pythons=["3.14"]), "python", "Python 3.14", "no wheel for Python 3.14"),
        (replace(DEBIAN_12, pythons=[]), "python", "no Python 3", "install one of Python 3.10 to 3.13"),
        (replace(DEBIAN_12, glibc="2.26"), "libc", "glibc 2.26", "2.27 or newer"),
        (replace(DEBIAN_12, systemd="247"), "system", "systemd is 247", "systemd 248 or newer"),
        (
            replace(DEBIAN_12, programs=["systemctl", "tail", "sleep", "cp", "mv"]),
            "system",
            "it lacks sshd, ssh, ssh-keygen",
            "sudo apt-get install openssh-client openssh-server",
        ),
        (
            replace(ROCKY_9, programs=[name for name in ALL_PROGRAMS if name != "sshd"]),
            "system",
            "it lacks sshd",
            "install them there",
        ),
        (
            replace(DEBIAN_12, cpuinfo="pentium"),
            "processor",
            "Pentium(R) CPU G620 @ 2.60GHz has no AVX",
            "virtual machine may hide AVX",
        ),
        (replace(DEBIAN_12, machine="riscv64"), "processor", "no wheel for riscv64", "an x86_64 processor"),
    ],
)
def test_what_keeps_a_host_out_is_said(
    host: RecordedHost, check: str, found: str, remedy: str, tmp_path: Path
) -> None:
    failed = checks_of(host, tmp_path)[check]
    assert failed.state == "failed"
    assert found in failed.found
    assert remedy in failed.remedy


def test_a_systemd_that_the_host_was_not_booted_with_does_not_count(tmp_path: Path) -> None:
    root = DEBIAN_12.lay_out(tmp_path)
    (root / "run/systemd/system").rmdir()
    check = host_chain(read_host_facts(root, "x86_64"), Asked())[NAMES.index("system")]
    assert (check.state, check.found) == ("failed", "it was not booted with systemd")


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    host = replace(ROCKY_9, cpuinfo="pentium", glibc="2.17", mem_total_kb=1000)
    assert {check.state for check in checks_of(host, tmp_path).values()} == {"failed"}


def test_aarch64_is_said_not_to_be_tested_and_gets_no_gpu(tmp_path: Path) -> None:
    host = replace(DEBIAN_12, machine="aarch64", cpuinfo="aarch64")
    facts = facts_of(host, tmp_path)
    assert {check.name: check.state for check in host_chain(facts, Asked())}["processor"] == "warning"
    assert host_environment(facts, Asked())[0].name == "cpu-python3.11-aarch64"
    refused = {check.name: check for check in host_chain(facts, Asked(gpus=True))}["processor"]
    assert refused.state == "failed"
    assert "no GPU wheel for aarch64" in refused.found
    assert "trainer_worker_gpus" in refused.remedy


def test_a_processor_without_flags_is_a_warning(tmp_path: Path) -> None:
    check = checks_of(replace(DEBIAN_12, cpuinfo="aarch64"), tmp_path)["processor"]
    assert check.state == "warning"
    assert "does not say whether it has AVX" in check.found


@pytest.mark.parametrize(
    ("asked", "device"),
    [
        (Asked(), "cpu"),
        (Asked(cuda_source="system"), "cpu"),
        (Asked(gpus=True), "gpu"),
        (Asked(gpus=True, cuda_source="system"), "gpu-system"),
    ],
)
def test_the_environment_is_for_what_the_tasks_compute_on(asked: Asked, device: str, tmp_path: Path) -> None:
    facts = facts_of(DEBIAN_12, tmp_path)
    assert host_environment(facts, asked)[0].name == f"{device}-python3.11-x86_64"


@pytest.mark.parametrize(
    ("host", "asked", "taken"),
    [
        (replace(DEBIAN_11, pythons=["3.9", "3.10", "3.12", "3.14"]), "", "3.12"),  # its own does not fit
        (replace(DEBIAN_11, pythons=["3.9", "3.10", "3.12", "3.14"]), "3.10", "3.10"),
        (replace(DEBIAN_12, pythons=["3.11", "3.12"]), "", "3.11"),
    ],
)
def test_which_python_is_taken(host: RecordedHost, asked: str, taken: str, tmp_path: Path) -> None:
    environment, _ = host_environment(facts_of(host, tmp_path), Asked(python_version=asked))
    assert environment.python == taken


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [("3.12", "install python3.12 there"), ("3.14", "TensorFlow 2.21.0 has no wheel for Python 3.14")],
)
def test_a_python_that_is_asked_for_and_not_to_be_had_is_named(
    asked: str, remedy: str, tmp_path: Path
) -> None:
    facts = facts_of(DEBIAN_12, tmp_path)
    check = host_chain(facts, Asked(python_version=asked))[NAMES.index("python")]
    assert check.state == "failed"
    assert check.found == f"package_store_python_version is {asked}; it has Python 3.11"
    assert remedy in check.remedy
    with pytest.raises(ValueError, match=f"package_store_python_version is {asked}"):
        host_environment(facts, Asked(python_version=asked))


def test_memory_is_that_of_the_host_or_of_its_control_group_whichever_is_less(tmp_path: Path) -> None:
    facts = facts_of(replace(DEBIAN_12, mem_total_kb=2 * 2**20), tmp_path)
    limited = replace(facts, memory_limit_bytes=2**30)

    def memory(facts: HostFacts, tasks: int) -> Check:
        return host_chain(facts, Asked(tasks=tasks))[NAMES.index("memory")]

    assert memory(facts, 4).state == "ok"
    # Tasks share TensorFlow's code: these start, and are told what they lack.
    assert [memory(facts, tasks).state for tasks in (5, 7, 8)] == ["warning", "warning", "failed"]
    assert memory(facts, 5).found.startswith("2.00 GiB of memory, which is little: 2.50 GiB for 5 tasks")
    assert memory(limited, 2).state == "ok"
    failed = memory(limited, 4)
    assert failed.state == "failed"
    assert failed.found == (
        "1.00 GiB (the limit of its control group) of memory; 1.25 GiB for 4 tasks are needed"
    )
    assert "trainer_worker_tasks" in failed.remedy
    assert memory(replace(facts, memory_bytes=None), 1).state == "warning"


@pytest.mark.parametrize("name", ["check", "environment", "host_checks", "host_facts", "wording"])
def test_what_runs_on_an_old_host_is_written_in_its_python(name: str) -> None:
    """A host with Python 3.8 must be told what it lacks, not that `match` is a syntax error."""
    text = (ROOT / "trainer/host" / f"{name}.py").read_text()
    ast.parse(text, feature_version=(3, 8))
    assert "from __future__ import annotations" in text
    assert "strict=" not in text
    assert "removeprefix" not in text
