"""The operating systems that hosts may run. Files describe all that differs between them.

Each file is YAML and belongs to the role host_look (its README.md). The controller reads these files, and
gives their content to the modules that need it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ..facts.host_facts import MESH_PROGRAMS, PROGRAMS, Distribution
from . import apt
from .system import Driver, Packages, System

# {package manager: function that returns the packages that no source of a host has}. For another package
# manager, only the installation finds out.
LACKING: Mapping[str, Callable[[Sequence[str]], tuple[str, ...]]] = {"apt": apt.lacking}
_NEEDED = (*PROGRAMS, *MESH_PROGRAMS, "wireguard-go")


@dataclass(frozen=True)
class Systems:
    """The systems that psfleet knows: `known` is {identity such as "debian": system}."""

    known: Mapping[str, System]

    def of(self, distribution: Distribution) -> System | None:
        """Return the system that a distribution is, else the first one that it is made from (its `like`).

        Return None if psfleet knows none of them.
        """
        kin = (distribution.identity, *distribution.like)
        return next((self.known[identity] for identity in kin if identity in self.known), None)

    @property
    def supported(self) -> str:
        """The supported releases of all systems, in words: "Debian 12 and 13, Ubuntu 22.04 and 24.04"."""
        return ", ".join(system.releases for system in self.known.values())


def read_systems(contents: Mapping[str, Any]) -> Systems:
    """Return the systems that the files of host_look describe.

    `contents` is {name of a file: what its YAML means}, as the fact cluster_systems has it. Raises ValueError
    that names the file, the key, the value and what is expected.
    """
    known: dict[str, System] = {}
    for file, content in contents.items():
        try:
            system = _system(content)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
        if system.identity in known:
            raise ValueError(f"{file}: id is {system.identity!r}; expected one that no other file has")
        known[system.identity] = system
    return Systems(known)


def _system(content: object) -> System:
    values = _read(content, _SYSTEM, "")
    if lacking := [program for program in _NEEDED if program not in values["programs"]]:
        raise ValueError(f"programs.{lacking[0]} is missing; expected the package that has this program")
    manager = values["package_manager"]
    driver = values.get("nvidia_driver")
    return System(
        identity=values["id"],
        packages=Packages(
            manager, values["install"], values["refresh"], LACKING.get(manager, lambda _packages: ())
        ),
        driver=None if driver is None else Driver(**driver),
        **{name: values[name] for name in ("name", "tested", "untested", "programs")},
        **{name: values[name] for name in ("sshd_service", "sshd_directory")},
    )


@dataclass(frozen=True)
class _Kind:
    """What a key expects, in words (`expected`), and whether it must be there (`needed`).

    `convert` returns the converted value, or raises ValueError if it is not as expected.
    """

    expected: str
    convert: Callable[[Any], Any]
    needed: bool = True


def _read(content: object, kinds: Mapping[str, _Kind], prefix: str) -> dict[str, Any]:
    """Return {key: converted value} for all keys of `content`. Raises ValueError with the first problem.

    `prefix` stands before each key in messages, such as "nvidia_driver.".
    """
    if not isinstance(content, Mapping):
        raise _problem(prefix.rstrip(".") or "its content", content, "keys and values")
    for key in content:
        if key not in kinds:
            close = get_close_matches(str(key), kinds, n=1)
            meant = f"{close[0]}?" if close else f"one of {', '.join(kinds)}"
            raise ValueError(f"{prefix}{key} is no key of a system; did you mean {meant}")
    for key, kind in kinds.items():
        if key not in content and kind.needed:
            raise ValueError(f"{prefix}{key} is missing; expected {kind.expected}")
    return {key: _converted(f"{prefix}{key}", value, kinds[key]) for key, value in content.items()}


def _converted(name: str, value: object, kind: _Kind) -> Any:  # noqa: ANN401 - of any kind
    try:
        return kind.convert(value)
    except _WrongTypeError as error:
        raise _problem(name, value, kind.expected) from error


class _WrongTypeError(ValueError):
    """The value is not as its key expects."""


def _problem(name: str, value: object, expected: str) -> ValueError:
    return ValueError(f"{name} is {str(value)[:100]!r}; expected {expected}")


def _matching(pattern: str) -> Callable[[Any], str]:
    def convert(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise _WrongTypeError
        return str(value)

    return convert


_to_text = _matching(r"[^\x00-\x1f]+")
_to_name = _matching(r"[a-z0-9][a-z0-9._-]*")


def _to_texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _WrongTypeError
    return tuple(map(_to_text, value))


def _to_packages(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _WrongTypeError
    return {_to_text(program): _to_text(package) for program, package in value.items()}


_TEXT = _Kind("a text", _to_text)
_RELEASES = _Kind('a list of releases in quotes, such as ["12"]', _to_texts)
_PACKAGES = _Kind("a list of names of packages", _to_texts)
_DRIVER = {
    "packages": _PACKAGES,
    "headers": _TEXT,
    "source": _TEXT,
    "smi": _TEXT,
    "signed": _Kind("the name of a package", _to_text, needed=False),
    "compiling": _Kind(_PACKAGES.expected, _to_texts, needed=False),
}
_SYSTEM = {
    "id": _Kind("the ID in the system's /etc/os-release, such as debian", _to_name),
    "name": _TEXT,
    "tested": _RELEASES,
    "untested": _RELEASES,
    "package_manager": _Kind("the name of a package manager, such as apt", _to_name),
    "install": _TEXT,
    "refresh": _TEXT,
    "programs": _Kind("programs, each with the package that has it, in text", _to_packages),
    "sshd_service": _Kind("the name of sshd's unit, such as ssh", _matching(r"[A-Za-z0-9][A-Za-z0-9@._-]*")),
    "sshd_directory": _Kind("an absolute path", _matching(r"(/[A-Za-z0-9][A-Za-z0-9._-]*)+")),
    "nvidia_driver": _Kind(
        "keys and values", lambda value: _read(value, _DRIVER, "nvidia_driver."), needed=False
    ),
}
