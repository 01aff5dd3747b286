"""What has to be known of an operating system."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..facts.host_facts import Distribution


@dataclass(frozen=True)
class Packages:
    """How a system gets its packages.

    `manager` is Ansible's name for it. `install` and `refresh` are what a person types, without sudo.
    `lacking` returns those of some packages that no source of this host has; it raises OSError where the host
    has no program to look.
    """

    manager: str
    install: str
    refresh: str
    lacking: Callable[[Sequence[str]], tuple[str, ...]]


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver, as a system has it in packages.

    {flavour} in the names of `packages` is the kind of the host's kernel, such as "amd64". `compiling` begins
    the names of packages that have DKMS compile the module, beside those with "dkms" in them; `headers` those
    of a kernel's headers, whose name follows. `source` says how a host gets a source of the packages,
    `signed` names the packages of a module that Secure Boot accepts, "" for none, and `smi` that of
    nvidia-smi.
    """

    packages: tuple[str, ...]
    headers: str
    source: str
    smi: str
    signed: str = ""
    compiling: tuple[str, ...] = ()

    def is_headers(self, package: str) -> bool:
        """Tell whether a package has the headers of a kernel."""
        return bool(self.headers) and package.startswith(self.headers)


@dataclass(frozen=True)
class System:
    """An operating system: `identity` is its ID in /etc/os-release, `name` what people call it.

    `tested` and `untested` are the releases (VERSION_ID) that are supported; the latter take the same code,
    and they are untested. `programs` has the package of each program that a host needs. sshd is the
    service `sshd_service`, and reads what is in `sshd_directory` after its own configuration. `driver` is
    None where no packages of NVIDIA's driver are known.
    """

    identity: str
    name: str
    tested: tuple[str, ...]
    untested: tuple[str, ...]
    packages: Packages
    programs: Mapping[str, str]
    sshd_service: str
    sshd_directory: str
    driver: Driver | None = None

    @property
    def releases(self) -> str:
        """The supported releases, in words: "Debian 12 and 13"."""
        releases = ", ".join((*self.tested, *self.untested))
        return f"{self.name} {' and '.join(releases.rsplit(', ', 1))}"

    def is_release(self, found: Distribution) -> bool:
        """Tell whether a distribution is a supported release of this system, and not one akin to it."""
        return self.is_tested(found) or self._is_one_of(found, self.untested)

    def is_tested(self, found: Distribution) -> bool:
        """Tell whether a distribution is a release of this system on which psfleet was tested."""
        return self._is_one_of(found, self.tested)

    def _is_one_of(self, found: Distribution, releases: Sequence[str]) -> bool:
        # 9 stands for 9.5 of a system whose releases are 8 and 9.
        versions = (found.version, found.version.partition(".")[0])
        return found.identity == self.identity and any(version in releases for version in versions)

    @property
    def for_roles(self) -> dict[str, Any]:
        """What roles on the controller take of it: `host_requirements` answers it for a host."""
        return {
            "sshd_service": self.sshd_service,
            "sshd_directory": self.sshd_directory,
            "package_manager": self.packages.manager,
        }
