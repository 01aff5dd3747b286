"""What installing NVIDIA's driver from packages would do to a host, described before it is done."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .nvidia import GpuFacts

# The flavour of a kernel follows its version: 6.1.0-56-cloud-amd64, 6.12.117+deb13-amd64, 6.8.0-1020-aws.
_VERSION = re.compile(r"[0-9][^-]*(?:-[0-9]+)?-")
# The kernel's name follows. With a flavour's name instead, the package has the headers of the newest kernel.
# DKMS builds the module only for kernels with headers.
HEADERS = "linux-headers-"
# Phrases of nvidia-smi for a broken or hanging GPU whose driver is installed and loaded.
_OF_THE_DEVICE = ("GPU is lost", "requires reset", "did not answer")
_COMPONENTS = {
    "debian": "add `contrib non-free non-free-firmware` to the components of "
    "/etc/apt/sources.list.d/debian.sources (or /etc/apt/sources.list)",
    "ubuntu": "add `restricted multiverse` to the components of /etc/apt/sources.list.d/ubuntu.sources "
    "(or /etc/apt/sources.list)",
}


@dataclass(frozen=True)
class DriverPackages:
    """The packages to install, sentences that say what that does, and a reason to refuse, "" if none."""

    packages: tuple[str, ...]
    says: tuple[str, ...]
    refusal: str


def choose_packages(
    system: str, kernel: str, by_system: Mapping[str, Sequence[str]], chosen: Sequence[str]
) -> tuple[str, ...]:
    """Return the driver's packages: the `chosen` ones, else those of the system; () for an unknown system.

    `by_system` maps a `system`, such as "debian-12", to packages. {flavour} in a name is replaced by that of
    the kernel, such as "amd64", "cloud-amd64", "generic" or "aws".
    """
    flavour = _VERSION.sub("", kernel, count=1)
    return tuple(package.format(flavour=flavour) for package in chosen or by_system.get(system, ()))


def without_candidate(policy: str, packages: Sequence[str]) -> tuple[str, ...]:
    """Return the packages that no source of the host has, by the output of `apt-cache policy PACKAGES`."""
    found, name = set(), ""
    for line in policy.splitlines():
        if line and not line.startswith(" "):
            name = line.rstrip(":")
        elif line.strip().startswith("Candidate:") and "(none)" not in line:
            found.add(name)
    return tuple(package for package in packages if package not in found)


def describe_installation(
    facts: GpuFacts, system: str, packages: Sequence[str], unknown: Sequence[str], *, chosen: bool
) -> DriverPackages:
    """Return what an installation would do. `unknown` are the packages that no source of the host has.

    `chosen` says that the user named the packages, and so vouches for their signatures.
    """
    return DriverPackages(
        packages=tuple(packages),
        says=tuple(_sentences(facts, packages)),
        refusal=_of_no_use(facts) or _refusal(facts, system, packages, unknown, chosen),
    )


def _sentences(facts: GpuFacts, packages: Sequence[str]) -> list[str]:
    says = [f"NVIDIA's driver is installed: apt-get installs {', '.join(packages)} and what they need."]
    if any("dkms" in package or package.startswith("nvidia-headless") for package in packages):
        says.append("DKMS compiles the kernel's module on the host, which takes some minutes.")
    held = sorted({name for name in facts.bus_drivers if name not in {"", "nvidia"}})
    own = f"{HEADERS}{facts.kernel}"
    if held:
        says.append(f"A reboot will be needed: until then the device is held by {' and '.join(held)}.")
    elif any(package.startswith(HEADERS) for package in packages) and own not in packages:
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


def _of_no_use(facts: GpuFacts) -> str:
    """Return why no package can make the GPUs usable; "" if one may."""
    if set(facts.bus_drivers) == {"vfio-pci"}:
        return (
            "vfio-pci passes the device on to a virtual machine: put that one into the inventory in place of "
            "its host, or release the device"
        )
    if facts.driver and any(words in facts.smi for words in _OF_THE_DEVICE):
        return "it is loaded, and no package mends that: `dmesg | grep Xid` says what happened; reboot"
    return ""


def _refusal(
    facts: GpuFacts, system: str, packages: Sequence[str], unknown: Sequence[str], chosen: bool
) -> str:
    if not packages:
        return (
            f"psfleet knows no packages of the driver for {system}: name them in "
            "nvidia_cuda_driver_packages, or install the driver yourself and set nvidia_cuda_driver to check"
        )
    if facts.secure_boot and not chosen:
        return (
            "Secure Boot is on: the kernel refuses a module that DKMS compiles, until its key was enrolled "
            "with somebody at the console. Name packages with signed modules in nvidia_cuda_driver_packages "
            "(of Ubuntu linux-modules-nvidia-580-server-generic), or enrol the key (`mokutil --import "
            "/var/lib/dkms/mok.pub`, a reboot) and name the packages there, too, or turn Secure Boot off"
        )
    if unknown and all(package.startswith(HEADERS) for package in unknown):
        return (
            f"the host's package sources have no {', '.join(unknown)}: the kernel that runs, "
            f"{facts.kernel}, is none of the distribution's, and DKMS compiles for no kernel without its "
            "headers; boot the distribution's kernel, or name packages in nvidia_cuda_driver_packages, "
            "without the headers where the kernel has brought its own"
        )
    if unknown:
        distribution = system.partition("-")[0]
        cure = _COMPONENTS.get(distribution, "add the source that has them")
        if set(unknown) == set(packages) and any(package.startswith(HEADERS) for package in packages):
            # Every host's sources have the headers. If these are unknown, too, there may be no lists at all.
            cure = f"`apt-get update`, where their lists were never fetched; else {cure}"
        return (
            f"the host's package sources have no {', '.join(unknown)}: {cure}, then `apt-get update`; or "
            "name other packages in nvidia_cuda_driver_packages"
        )
    return ""
