"""The announced effects of installing the driver, and its refusals before anything is installed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from plugins.module_utils.facts.driver_packages import (
    DriverPackages,
    describe_installation,
    name_packages,
    plan_installation,
)
from plugins.module_utils.facts.host_facts import Distribution
from plugins.module_utils.facts.nvidia import GpuFacts
from plugins.module_utils.systems.apt import without_candidate
from tests.plugins.module_utils.described import DEBIAN, SYSTEMS, UBUNTU
from tests.plugins.module_utils.made_gpu_hosts import KERNEL
from tests.plugins.module_utils.recorded_findings import cases, told

FACTS = GpuFacts(bus=("0000:83:00.0",), bus_drivers=("",), secure_boot=False, kernel=KERNEL)


def plan_of(case: dict[str, Any]) -> DriverPackages:
    """Return the planned installation; the default is Debian's driver on a host without one."""
    packages = case.get("packages", ["nvidia-kernel-dkms", "nvidia-smi"])
    unknown, chosen = case.get("unknown", []), case.get("chosen", False)
    facts = replace(FACTS, **told(case.get("facts", {})))
    system = SYSTEMS[case.get("system", "debian")]
    plan = describe_installation(facts, system, packages, unknown, chosen=chosen)
    assert plan.packages == tuple(packages)
    return plan


@cases("packages")
def test_the_packages_to_install_or_the_refusal_are_announced(case: dict[str, Any]) -> None:
    plan = plan_of(case)
    assert plan.refusal == case.get("refusal", "")
    assert plan.refusal or [*plan.says] == case["says"]


@pytest.mark.parametrize(
    ("kernel", "flavour"),
    [
        ("6.1.0-56-amd64", "amd64"),
        ("6.1.0-56-cloud-amd64", "cloud-amd64"),
        ("6.12.117+deb13-cloud-amd64", "cloud-amd64"),
        ("5.15.0-185-generic", "generic"),
        ("6.8-7-64-own", "64-own"),
    ],
)
def test_kernel_headers_match_the_flavour_of_the_kernel(kernel: str, flavour: str) -> None:
    assert DEBIAN.driver
    assert name_packages(kernel, DEBIAN.driver.packages)[-1] == f"linux-headers-{flavour}"


@pytest.mark.parametrize(
    ("kernels_own", "chosen", "headers"),
    [
        (True, [], ["linux-headers-amd64", f"linux-headers-{KERNEL}"]),
        (False, [], ["linux-headers-amd64"]),
        (True, ["cuda-drivers"], []),
    ],
)
def test_headers_of_the_running_kernel_are_installed_if_the_sources_have_them(
    kernels_own: bool, chosen: list[str], headers: list[str]
) -> None:
    """DKMS cannot compile for a kernel without its headers; only that package may be missing here."""

    def lacking(packages: Sequence[str]) -> tuple[str, ...]:
        return () if kernels_own else tuple({f"linux-headers-{KERNEL}"} & {*packages})

    system = replace(DEBIAN, packages=replace(DEBIAN.packages, lacking=lacking))
    plan = plan_installation(FACTS, Distribution("debian", "12", (), "Debian 12"), system, chosen)
    assert plan.refusal == ""
    assert [package for package in plan.packages if "headers" in package] == headers


def test_an_unknown_derivative_gets_only_driver_packages_named_in_the_inventory() -> None:
    found = Distribution("linuxmint", "22", ("ubuntu", "debian"), "Linux Mint 22")
    nothing = replace(UBUNTU, packages=replace(UBUNTU.packages, lacking=lambda _packages: ()))
    said = plan_installation(FACTS, found, nothing, [])
    assert (said.packages, said.refusal) == (
        (),
        "psfleet knows no packages of the driver for linuxmint-22: name them in nvidia_cuda_driver_packages, "
        "or install the driver yourself and set nvidia_cuda_driver to check",
    )
    assert plan_installation(FACTS, found, nothing, ["cuda-drivers"]).packages == ("cuda-drivers",)
    passed_on = replace(FACTS, bus_drivers=("vfio-pci",))
    assert plan_installation(passed_on, found, nothing, []).refusal.startswith(
        "vfio-pci passes the device on"
    )


def test_packages_without_a_candidate_in_apt_are_listed() -> None:
    """The policy has a package with a candidate and one without; apt prints nothing about the third."""
    policy = (
        "nvidia-smi:\n  Installed: (none)\n  Candidate: 535.309.01-0+deb12u1\n  Version table:\n"
        "     535.309.01-0+deb12u1 500\n        500 http://deb.debian.org/debian bookworm/non-free Packages\n"
        "nvidia-modprobe:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n"
    )
    asked = ["nvidia-smi", "nvidia-modprobe", "nvidia-nothing"]
    assert without_candidate(policy, asked) == ("nvidia-modprobe", "nvidia-nothing")
