"""Reads the files that describe the operating systems of hosts, in the role host_look."""

from pathlib import Path
from typing import Any

import yaml

from plugins.module_utils.systems import read_systems
from psfleet.inventory.problems import InventoryError, InventoryProblem, short_path

FOLDER = Path(__file__).resolve().parents[2] / "roles" / "host_look" / "files" / "systems"


def described_systems(folder: Path = FOLDER) -> dict[str, Any]:
    """Return {file name: its parsed content} of the *.yml files in `folder`, sorted by name.

    Hidden files are left out; {} for no files. Raises InventoryError if a file is not valid YAML, or does not
    describe a system.
    """
    described: dict[str, Any] = {}
    for file in sorted(folder.glob("[!.]*.yml")):
        described[file.name] = _content(file)
        _require_systems(described, file)
    return described


def _content(file: Path) -> object:
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _refusal(f"{file.name} is no YAML: {' '.join(str(error).split())}", file) from error


def _require_systems(described: dict[str, Any], newest: Path) -> None:
    try:
        read_systems(described)
    except ValueError as error:
        raise _refusal(str(error), newest) from error


def _refusal(what: str, file: Path) -> InventoryError:
    return InventoryError([InventoryProblem(what, cure=f"edit {short_path(file)}")])
