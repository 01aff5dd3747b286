"""Describes what installing NVIDIA's driver from packages would do to a host, before it is done."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..systems.system import Driver, System
from .host_facts import Distribution
from .nvidia import GpuFacts

# The flavour of a kernel follows its version: 6.1.0-56-cloud-amd64, 6.12.117+deb13-amd64, 6.8.0-1020-aws.
_VERSION = re.compile(r"[0-9][^-]*(?:-[0-9]+)?-")
# Words of nvidia-smi if a GPU is broken or hangs, although its driver is installed and loaded.
_DEVICE_ERRORS = ("GPU is lost", "requires reset", "did not answer")

# For a system whose driver packages psfleet does not know; the user has named some.
UNKNOWN = Driver((), "", "add a source that has them", "")


@dataclass(frozen=True)
class DriverPackages:
    """The `packages` to install, and `says`, sentences for people about what installing them does.

    `refusal` is the reason, in words, why they cannot be installed or would not help; "" if there is none.
    """

    packages: tuple[str, ...]
    says: tuple[str, ...]
    refusal: str


def plan_installation(
    facts: GpuFacts, distribution: Distribution, system: System, chosen: Sequence[str]
) -> DriverPackages:
    """Return what installing the driver on this host would do; it installs nothing.

    The packages are those that the user has `chosen`, else the system's own; for a distribution that is only
    like a known system there are none, and a `refusal`. Packages may have {flavour} in their names, as for
    `name_packages`. Raises OSError if the host has no program that knows its packages.
    """
    driver = system.driver or UNKNOWN
    own = driver.packages if system.is_release(distribution) else ()
    packages = name_packages(facts.kernel, chosen or own)
    if not packages:
        return DriverPackages((), (), _why_useless(facts) or _unknown_packages(distribution))
    headers = f"{driver.headers}{facts.kernel}"
    if not chosen and not system.packages.lacking([headers]):
        packages += (headers,)
    unknown = system.packages.lacking(packages)
    return describe_installation(facts, system, packages, unknown, chosen=bool(chosen))


def name_packages(kernel: str, packages: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the packages, with {flavour} replaced by the kind of the kernel.

    `kernel` is the release of the running kernel.

    Example: name_packages("6.1.0-56-cloud-amd64", ["driver-{flavour}"]) -> ("driver-cloud-amd64",)
    """
    flavour = _VERSION.sub("", kernel, count=1)
    return tuple(package.format(flavour=flavour) for package in packages)


def describe_installation(
    facts: GpuFacts, system: System, packages: Sequence[str], unknown: Sequence[str], *, chosen: bool
) -> DriverPackages:
    """Return what installing the `packages` would do; `unknown` are those that no source of the host has.

    Unknown packages are a reason for a `refusal`. Secure Boot is one only if the user has not `chosen` the
    packages: who names them answers for their signatures.
    """
    return DriverPackages(
        packages=tuple(packages),
        says=tuple(_sentences(facts, system, packages)),
        refusal=_why_useless(facts) or _refusal(facts, system, packages, unknown, chosen),
    )


def _sentences(facts: GpuFacts, system: System, packages: Sequence[str]) -> list[str]:
    command = f"{system.packages.install}s"
    says = [f"NVIDIA's driver is installed: {command} {', '.join(packages)} and what they need."]
    driver = system.driver or UNKNOWN
    if any("dkms" in package or package.startswith(driver.compiling) for package in packages):
        says.append("DKMS compiles the kernel's module on the host, which takes some minutes.")
    others = sorted({name for name in facts.bus_drivers if name not in {"", "nvidia"}})
    own = f"{driver.headers}{facts.kernel}"
    if others:
        says.append(f"A reboot will be needed: until then the device is held by {' and '.join(others)}.")
    elif any(map(driver.is_headers, packages)) and own not in packages:
        says.append(
            f"{own}, for the kernel that runs, is not among them: where the host lacks it, a reboot into the "
            "newest kernel will be needed."
        )
    else:
        says.append("The module is loaded without a reboot where it is there for the kernel that runs.")
    if facts.secure_boot is None:
        says.append(
            "The firmware does not tell whether Secure Boot is on; with it, an unsigned module does not load."
        )
    return says


def _why_useless(facts: GpuFacts) -> str:
    """Return, in words, why no package can make the GPUs usable; "" if a package may."""
    if set(facts.bus_drivers) == {"vfio-pci"}:
        return (
            "vfio-pci passes the device on to a virtual machine: put that one into the inventory in place of "
            "its host, or release the device"
        )
    if facts.driver and any(words in facts.smi for words in _DEVICE_ERRORS):
        return "it is loaded, and no package mends that: `dmesg | grep Xid` says what happened; reboot"
    return ""


def _unknown_packages(distribution: Distribution) -> str:
    name = f"{distribution.identity}-{distribution.version}"
    return (
        f"psfleet knows no packages of the driver for {name}: name them in "
        "nvidia_cuda_driver_packages, or install the driver yourself and set nvidia_cuda_driver to check"
    )


def _refusal(
    facts: GpuFacts, system: System, packages: Sequence[str], unknown: Sequence[str], chosen: bool
) -> str:
    driver = system.driver or UNKNOWN
    if facts.secure_boot and not chosen:
        such = f" (such as {driver.signed})" if driver.signed else ""
        return (
            "Secure Boot is on: the kernel refuses a module that DKMS compiles, until its key was enrolled "
            "with somebody at the console. Name packages with signed modules in nvidia_cuda_driver_packages"
            f"{such}, or enrol the key (`mokutil --import "
            "/var/lib/dkms/mok.pub`, a reboot) and name the packages there, too, or turn Secure Boot off"
        )
    if unknown and all(map(driver.is_headers, unknown)):
        return (
            f"the host's package sources have no {', '.join(unknown)}: the kernel that runs, "
            f"{facts.kernel}, is not the distribution's, and DKMS needs a kernel's headers to compile for "
            "it; boot the distribution's kernel, or name packages in nvidia_cuda_driver_packages, "
            "without the headers where the kernel has brought its own"
        )
    if unknown:
        cure, refresh = driver.source, system.packages.refresh
        if set(unknown) == set(packages) and any(map(driver.is_headers, packages)):
            # The headers come from the component that every host has, so perhaps there are no lists at all.
            cure = f"`{refresh}`, where their lists were never fetched; else {cure}"
        return (
            f"the host's package sources have no {', '.join(unknown)}: {cure}, then `{refresh}`; or "
            "name other packages in nvidia_cuda_driver_packages"
        )
    return ""
