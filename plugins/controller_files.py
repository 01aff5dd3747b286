"""The files of the controller that the inventory names: the user's program, what it needs, and the data."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the trainer package is not installed

from plugins.module_utils.content_directory import content_files, content_hash
from trainer.inventory_problems import InventoryProblem

PROGRAM_MEGABYTES = 100
PROGRAM_VARIABLES = {
    "trainer_program_entry",
    "trainer_program_arguments",
    "trainer_program_flags",
    "trainer_program_requirements",
}
# Only a folder of a virtual environment holds it.
_ENVIRONMENT_MARK = "pyvenv.cfg"


class _Findings:
    """Collects what is wrong with the path that a variable of the cluster has."""

    def __init__(self, variable: str, value: str, hosts: Sequence[str]) -> None:
        self.problems: list[InventoryProblem] = []
        self._variable = variable
        self._value = value
        self._hosts = tuple(hosts)

    def add(self, found: str, expected: str) -> None:
        self.add_of(self._variable, self._value, found, expected)

    def add_of(self, variable: str, value: str, found: str, expected: str) -> None:
        what = f"{variable} is {value!r}, {found}; expected {expected}"
        self.problems.append(InventoryProblem(what, variable, self._hosts))


def program_fact(
    values: Mapping[str, Any], hosts: Sequence[str]
) -> tuple[dict[str, Any], list[InventoryProblem]]:
    """Return the fact `cluster_program`, {} without a program, and what is wrong with its files.

    `values` holds the converted variables of the cluster, less those that were refused; `hosts` have them.
    """
    if not values.get("trainer_program") or not values.keys() >= PROGRAM_VARIABLES:
        return {}, []
    findings = _Findings("trainer_program", values["trainer_program"], hosts)
    source = controller_path(values["trainer_program"])
    entry = values["trainer_program_entry"] if source.is_dir() else source.name
    release = _release(source, entry, findings)
    requirements, lacking = _requirements(values["trainer_program_requirements"], hosts)
    fact = {
        "source": str(source),
        "entry": entry,
        "arguments": values["trainer_program_arguments"],
        "flags": values["trainer_program_flags"],
        "requirements": requirements,
        "release": release,
    }
    return fact, [*findings.problems, *lacking]


def data_source(values: Mapping[str, Any], hosts: Sequence[str]) -> tuple[str, list[InventoryProblem]]:
    """Return the absolute path of the data that is carried to the hosts, "" for none, and what is wrong.

    `values` and `hosts` are as for `program_fact`.
    """
    if not values.get("trainer_data_source"):
        return "", []
    findings = _Findings("trainer_data_source", values["trainer_data_source"], hosts)
    source = controller_path(values["trainer_data_source"])
    expected = "a file or folder on this machine, with something in it"
    if not source.exists():
        findings.add(f"and there is no {source}", expected)
    elif not os.access(source, os.R_OK):
        findings.add("which you may not read", expected)
    elif not (any(source.iterdir()) if source.is_dir() else source.stat().st_size):
        findings.add("which is empty", expected)
    return str(source), findings.problems


def controller_path(text: str) -> Path:
    """Return the absolute path that people mean where they type `ansible-playbook`."""
    return Path(os.path.abspath(Path(text).expanduser()))  # noqa: PTH100 - resolve() would follow links


def _release(source: Path, entry: str, findings: _Findings) -> str:
    """Return the hash of the program's content; what keeps it from being carried is added to `findings`."""
    if not source.exists():
        findings.add(f"and there is no {source}", "a Python file, or a folder with one, on this machine")
        return ""
    environment = _virtual_environment(source)
    if environment:
        expected = "the program alone: move the other out of it, or begin its name with a dot"
        findings.add(f"which holds the virtual environment {environment}", expected)
        return ""
    try:
        files = content_files(source)
        _check_content(source, files, entry, findings)
        return "" if findings.problems else content_hash(source)
    except ValueError as error:
        findings.add(f"where {error}", "files and folders that can be carried")
    except OSError as error:
        findings.add(f"where {error.filename} cannot be read ({error.strerror})", "files that you may read")
    return ""


def _virtual_environment(source: Path) -> str:
    """Return the first virtual environment below the folder whose name has no dot before it, "" for none."""
    for parent, folders, names in os.walk(source):
        if _ENVIRONMENT_MARK in names:
            return parent
        folders[:] = [name for name in folders if not name.startswith(".")]
    return ""


def _check_content(source: Path, files: Mapping[str, Path], entry: str, findings: _Findings) -> None:
    if entry not in files:
        found = f"and there is no file {source / entry}"
        if (source / entry).is_file():
            found = "which is left out"
        expected = "a file of the folder trainer_program; what begins with a dot is left out"
        findings.add_of("trainer_program_entry", entry, found, expected)
    sizes = {name: path.stat().st_size for name, path in files.items()}
    megabytes = sum(sizes.values()) / 1e6
    if megabytes > PROGRAM_MEGABYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        expected = f"{PROGRAM_MEGABYTES} MB at most: trainer_data_source carries data"
        findings.add(f"which holds {megabytes:.0f} MB (the largest file is {largest})", expected)


def _requirements(text: str, hosts: Sequence[str]) -> tuple[str, list[InventoryProblem]]:
    if not text:
        return "", []
    findings = _Findings("trainer_program_requirements", text, hosts)
    path = controller_path(text)
    if not path.is_file():
        findings.add(f"and there is no file {path}", "a requirements.txt on this machine")
    return str(path), findings.problems
