"""The filter `version_problems`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from ansible.module_utils.compat.version import LooseVersion
from ansible.release import __version__ as core_version

CORE = "ansible-core"


def version_problems(expected: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return in words which of these are too old or too new on the controller; nothing where all fit.

    `expected` maps "ansible-core" or the name of a collection to `oldest`, which works, and
    `first_unsupported`, which nobody has tried.
    """
    return [
        problem
        for name, bounds in expected.items()
        if (problem := _problem(name, bounds, found_version(name)))
    ]


def _problem(name: str, bounds: Mapping[str, str], found: str) -> str:
    oldest, first_unsupported = str(bounds["oldest"]), str(bounds["first_unsupported"])
    expected = f"expected {oldest} or newer, and older than {first_unsupported}"
    if not found:
        return f"{name} is of no known version; {expected}"
    if LooseVersion(oldest) <= LooseVersion(found) < LooseVersion(first_unsupported):
        return ""
    return f"{name} is {found}; {expected}{_where(name)}"


def found_version(name: str) -> str:
    """Return the version of ansible-core, or of the collection that Ansible uses; "" where none is told."""
    if name == CORE:
        return str(core_version)
    folder = _folder(name)
    if folder is None:
        return ""
    try:
        information = json.loads((folder / "MANIFEST.json").read_text(encoding="utf-8"))["collection_info"]
    except (OSError, ValueError, KeyError):
        return ""
    return str(information.get("version", ""))


def _folder(collection: str) -> Path | None:
    """Return where Ansible finds a collection, None where it finds none."""
    try:
        package = import_module(f"ansible_collections.{collection}")
    except ImportError:
        return None
    return Path(package.__path__[0])


def _where(name: str) -> str:
    folder = None if name == CORE else _folder(name)
    return "" if folder is None else f" ({folder})"


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {"version_problems": version_problems}
