"""What psfleet must know of an operating system."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..facts.host_facts import Distribution


@dataclass(frozen=True)
class Packages:
    """How a system gets its packages.

    - `manager`: Ansible's name for the package manager, such as "apt".
    - `install`, `refresh`: commands as a person types them, without sudo.
    - `lacking`: a function that returns, of the given packages, those that no source of this host has. It
      raises OSError if the host has no program to find out.
    """

    manager: str
    install: str
    refresh: str
    lacking: Callable[[Sequence[str]], tuple[str, ...]]


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver, as packages of a system.

    - `packages`: {flavour} in their names is the kind of the host's kernel, such as "amd64".
    - `headers`: how the name of a package with a kernel's headers begins; the kernel's version follows.
    - `source`: how a host gets a source of the packages. `smi`: the package with nvidia-smi.
    - `signed`: a package with a module that Secure Boot accepts, "" for none.
    - `compiling`: the beginnings of the names of packages that make DKMS compile the module. Packages with
      "dkms" in their names do so in any case.
    """

    packages: tuple[str, ...]
    headers: str
    source: str
    smi: str
    signed: str = ""
    compiling: tuple[str, ...] = ()

    def is_headers(self, package: str) -> bool:
        """Return whether the name of a package begins with `headers`, as packages with kernel headers do.

        Return False if `headers` is "".
        """
        return bool(self.headers) and package.startswith(self.headers)


@dataclass(frozen=True)
class System:
    """An operating system; `identity` is its ID in /etc/os-release, `name` is for people.

    - `tested` and `untested`: the supported releases (VERSION_ID); psfleet was tested on the former only.
    - `programs`: {program that a host needs: its package}.
    - `sshd_service`: the service of sshd. `sshd_directory`: sshd reads the files there after its own
      configuration.
    - `driver`: None if no packages of NVIDIA's driver are known.
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

    def is_release(self, distribution: Distribution) -> bool:
        """Return whether a distribution is a supported release of this system (`tested` or `untested`).

        A distribution that is only made from the system, or another release, gives False.
        """
        return self.is_tested(distribution) or self._is_one_of(distribution, self.untested)

    def is_tested(self, distribution: Distribution) -> bool:
        """Return whether a distribution is a release of this system on which psfleet was tested."""
        return self._is_one_of(distribution, self.tested)

    def _is_one_of(self, distribution: Distribution, releases: Sequence[str]) -> bool:
        # The release 9 of a system includes the versions 9.1, 9.2 and so on.
        versions = (distribution.version, distribution.version.partition(".")[0])
        return distribution.identity == self.identity and any(version in releases for version in versions)

    @property
    def for_roles(self) -> dict[str, Any]:
        """The fields that roles read: `sshd_service`, `sshd_directory` and `package_manager`, all texts.

        The part `requirements` of `host_facts` returns them.
        """
        return {
            "sshd_service": self.sshd_service,
            "sshd_directory": self.sshd_directory,
            "package_manager": self.packages.manager,
        }
