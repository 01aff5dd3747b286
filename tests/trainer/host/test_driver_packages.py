"""What installing the driver is said to do, and where it is refused, before anything is installed."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.repository import ROOT
from tests.trainer.host.made_gpu_hosts import KERNEL
from trainer.host.driver_packages import (
    DriverPackages,
    choose_packages,
    describe_installation,
    without_candidate,
)
from trainer.host.nvidia import GpuFacts

ROLE = ROOT / "roles" / "nvidia_cuda"
FACTS = GpuFacts(bus=("0000:83:00.0",), bus_drivers=("",), secure_boot=False, kernel=KERNEL)
PACKAGES = ("nvidia-kernel-dkms", "nvidia-smi")


def described(facts: GpuFacts = FACTS, **values: Any) -> DriverPackages:  # noqa: ANN401
    given: dict[str, Any] = {
        "system": "debian-12",
        "packages": PACKAGES,
        "unknown": (),
        "chosen": False,
    } | values
    return describe_installation(facts, **given)


@pytest.mark.parametrize(
    ("kernel", "flavour"),
    [
        ("6.1.0-56-amd64", "amd64"),
        ("6.1.0-56-cloud-amd64", "cloud-amd64"),
        ("6.12.117+deb13-amd64", "amd64"),
        ("6.12.117+deb13-cloud-amd64", "cloud-amd64"),
        ("5.15.0-185-generic", "generic"),
        ("6.8.0-1020-aws", "aws"),
    ],
)
def test_the_headers_are_those_of_the_kind_of_kernel(kernel: str, flavour: str) -> None:
    chosen = choose_packages("debian-12", kernel, {"debian-12": ["linux-headers-{flavour}"]}, [])
    assert chosen == (f"linux-headers-{flavour}",)


def test_packages_that_somebody_names_take_the_place_of_the_distributions() -> None:
    by_system = {"debian-12": ["nvidia-smi"]}
    assert choose_packages("debian-12", KERNEL, by_system, ["cuda-drivers"]) == ("cuda-drivers",)
    assert choose_packages("debian-12", KERNEL, by_system, []) == ("nvidia-smi",)
    assert choose_packages("rhel-9", KERNEL, by_system, []) == ()


def test_the_role_knows_packages_for_every_distribution_that_is_supported() -> None:
    values = yaml.safe_load((ROLE / "vars" / "main.yml").read_text(encoding="utf-8"))
    names = values["__nvidia_cuda_system_packages"]
    assert set(names) == {"debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04"}
    assert {name.strip("{} ") for name in names.values()} <= set(values)


def test_a_host_with_nothing_in_the_way_is_told_what_will_happen() -> None:
    plan = described()
    assert plan.refusal == ""
    assert plan.packages == PACKAGES
    said = " ".join(plan.says)
    assert "nvidia-kernel-dkms, nvidia-smi" in said
    assert "loaded without a reboot" in said
    assert "DKMS compiles" in said


def test_packages_with_a_module_that_is_built_already_are_not_compiled() -> None:
    assert "DKMS" not in " ".join(described(packages=["linux-modules-nvidia-580-server-generic"]).says)


def test_a_module_cannot_be_compiled_for_a_kernel_whose_headers_are_no_longer_in_the_sources() -> None:
    own, newest = f"linux-headers-{KERNEL}", "linux-headers-amd64"
    said = " ".join(described(packages=[*PACKAGES, newest]).says)
    assert f"{own}, for the kernel that runs, is not among them" in said
    assert "a reboot into the newest kernel" in said
    assert "loaded without a reboot" in " ".join(described(packages=[*PACKAGES, newest, own]).says)


def test_nouveau_means_a_reboot() -> None:
    said = " ".join(described(replace(FACTS, bus_drivers=("nouveau",))).says)
    assert "A reboot will be needed: nouveau holds the device" in said


def test_secure_boot_refuses_what_dkms_compiles_unless_somebody_answers_for_the_packages() -> None:
    secured = replace(FACTS, secure_boot=True)
    assert "Secure Boot is on" in described(secured).refusal
    assert "mokutil --import" in described(secured).refusal
    assert described(secured, chosen=True).refusal == ""
    assert "does not tell whether Secure Boot" in " ".join(described(replace(FACTS, secure_boot=None)).says)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bus_drivers": ("vfio-pci",)}, "virtual machine"),
        ({"bus_drivers": ("vfio-pci", "")}, ""),
        ({"driver": "570.86.15", "smi": "nvidia-smi did not answer within 60 s"}, "no package mends that"),
        ({"driver": "470.82.01", "smi": "Driver/library version mismatch"}, ""),
        ({"smi": "nvidia-smi is not installed"}, ""),
    ],
)
def test_nothing_is_installed_where_that_helps_nobody(changes: dict[str, Any], words: str) -> None:
    refusal = described(replace(FACTS, **changes)).refusal
    assert words in refusal
    assert bool(refusal) == bool(words)


@pytest.mark.parametrize(
    ("system", "cure"),
    [
        ("debian-13", "`contrib non-free non-free-firmware`"),
        ("ubuntu-24.04", "`restricted multiverse`"),
        ("mint-22", "add the source"),
    ],
)
def test_a_host_without_the_source_of_the_packages_is_told_which(system: str, cure: str) -> None:
    refusal = described(system=system, unknown=["nvidia-smi"]).refusal
    assert "no nvidia-smi" in refusal
    assert cure in refusal
    assert "nvidia_cuda_driver_packages" in refusal


def test_a_host_whose_lists_were_never_fetched_is_told_to_fetch_them_first() -> None:
    packages = [*PACKAGES, "linux-headers-amd64"]
    assert "where their lists were never fetched" in described(packages=packages, unknown=packages).refusal
    assert "never fetched" not in described(packages=packages, unknown=PACKAGES).refusal


def test_a_kernel_of_ones_own_has_no_headers_in_the_sources() -> None:
    refusal = described(unknown=["linux-headers-custom"]).refusal
    assert f"the kernel that runs, {KERNEL}, is none of the distribution's" in refusal
    assert "non-free" not in refusal
    assert "non-free" in described(unknown=["linux-headers-custom", "nvidia-smi"]).refusal


def test_a_distribution_without_known_packages_is_refused() -> None:
    refusal = described(system="rhel-9", packages=()).refusal
    assert "rhel-9" in refusal
    assert "nvidia_cuda_driver to check" in refusal


def test_what_apt_does_not_know_is_found() -> None:
    """A package with a version, one that no source has any more, and one that apt says nothing of."""
    policy = (
        "nvidia-smi:\n  Installed: (none)\n  Candidate: 535.309.01-0+deb12u1\n  Version table:\n"
        "     535.309.01-0+deb12u1 500\n        500 http://deb.debian.org/debian bookworm/non-free Packages\n"
        "nvidia-modprobe:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n"
    )
    asked = ["nvidia-smi", "nvidia-modprobe", "nvidia-nothing"]
    assert without_candidate(policy, asked) == ("nvidia-modprobe", "nvidia-nothing")
