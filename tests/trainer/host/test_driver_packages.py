"""What installing the driver is said to do, and where it is refused, before anything is installed."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.repository import ROOT
from tests.trainer.host.made_gpu_hosts import KERNEL
from tests.trainer.host.recorded_findings import cases, told
from trainer.host.driver_packages import (
    DriverPackages,
    choose_packages,
    describe_installation,
    without_candidate,
)
from trainer.host.nvidia import GpuFacts

ROLE = ROOT / "roles" / "nvidia_cuda"
FACTS = GpuFacts(bus=("0000:83:00.0",), bus_drivers=("",), secure_boot=False, kernel=KERNEL)


def plan_of(case: dict[str, Any]) -> DriverPackages:
    """Return what an installation does: of Debian's driver on a host without one, if nothing else is told."""
    packages = case.get("packages", ["nvidia-kernel-dkms", "nvidia-smi"])
    unknown, chosen = case.get("unknown", []), case.get("chosen", False)
    facts = replace(FACTS, **told(case.get("facts", {})))
    plan = describe_installation(facts, case.get("system", "debian-12"), packages, unknown, chosen=chosen)
    assert plan.packages == tuple(packages)
    return plan


@cases("packages")
def test_what_is_installed_or_why_not_is_said_before(case: dict[str, Any]) -> None:
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
def test_headers_are_of_the_kind_of_kernel_and_packages_that_somebody_names_go_first(
    kernel: str, flavour: str
) -> None:
    by_system = {"debian-12": ["linux-headers-{flavour}"]}
    assert choose_packages("debian-12", kernel, by_system, []) == (f"linux-headers-{flavour}",)
    assert choose_packages("debian-12", kernel, by_system, ["cuda-drivers"]) == ("cuda-drivers",)
    assert choose_packages("rhel-9", kernel, by_system, []) == ()


def test_the_role_knows_packages_for_every_distribution_that_is_supported() -> None:
    values = yaml.safe_load((ROLE / "vars" / "main.yml").read_text(encoding="utf-8"))
    names = values["__nvidia_cuda_system_packages"]
    assert set(names) == {"debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04"}
    assert {name.strip("{} ") for name in names.values()} <= set(values)


def test_what_apt_does_not_know_is_found() -> None:
    """A package with a version, one that no source has any more, and one that apt says nothing of."""
    policy = (
        "nvidia-smi:\n  Installed: (none)\n  Candidate: 535.309.01-0+deb12u1\n  Version table:\n"
        "     535.309.01-0+deb12u1 500\n        500 http://deb.debian.org/debian bookworm/non-free Packages\n"
        "nvidia-modprobe:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n"
    )
    asked = ["nvidia-smi", "nvidia-modprobe", "nvidia-nothing"]
    assert without_candidate(policy, asked) == ("nvidia-modprobe", "nvidia-nothing")
