"""Finds the files of an inventory that Ansible cannot read, or reads for no host and no group."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import yaml
from ansible import constants

from psfleet.inventory.problems import InventoryProblem, short_path

# {folder beside an inventory: what its files are named after}
_FOLDERS = {"host_vars": "host", "group_vars": "group"}
_YAML = (".yml", ".yaml")
_ENDINGS = (*_YAML, ".json")


def inventory_files(source: Path) -> list[Path]:
    """Return the files that list hosts: [source], or the files that Ansible reads in the folder `source`.

    These are sorted; hidden files and endings that Ansible ignores are left out. [] if `source` is missing.
    """
    files = [source] if source.is_file() else sorted(source.glob("[!.]*"))
    ignored = tuple(constants.INVENTORY_IGNORE_EXTS)
    return [file for file in files if file.is_file() and not file.name.endswith(ignored)]


def yaml_problems(sources: Sequence[str]) -> Iterator[InventoryProblem]:
    """Yield a problem for each file of the inventory, or of its variables, that is not valid YAML.

    Only files with the endings .yml and .yaml are read. `sources` may contain lists of hosts ("a,b"), which
    are ignored.
    """
    for source in _paths(sources):
        files = [*inventory_files(source), *(file for _, _, file in _files_of_variables(source))]
        for file in dict.fromkeys(file for file in files if file.suffix in _YAML):
            if error := _yaml_error(file):
                yield error


def _yaml_error(file: Path) -> InventoryProblem | None:
    """Return the problem of a file that is not valid YAML, with its line if known; None if it is valid."""
    try:
        yaml.compose(file.read_text(encoding="utf-8", errors="replace"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        what = (error.problem or "").replace("'\\t'", "a tab")
        blanks = "; expected blanks in place of the tab" if "a tab" in what else ""
        return InventoryProblem(
            f"{short_path(file)} is no YAML: {what}{blanks}", cure=f"edit {short_path(file)}{line}"
        )
    except yaml.YAMLError as error:
        return InventoryProblem(f"{short_path(file)} is no YAML: {error}", cure=f"edit {short_path(file)}")
    return None


def unused_files(
    sources: Sequence[str], groups: Mapping[str, Collection[str]], ours: Collection[str]
) -> Iterator[str]:
    """Yield a sentence about each file in host_vars and group_vars that belongs to no host and no group.

    Only files that set a variable in `ours`, the variables of psfleet, count. `groups` is {group: its hosts};
    `sources` are the files, folders and host lists of the inventory.
    """
    names = {"host": {host for hosts in groups.values() for host in hosts}, "group": {*groups}}
    for source in _paths(sources):
        for kind, entry, file in _files_of_variables(source):
            # A name may have dots, and needs no ending.
            if {entry.name, entry.stem if entry.suffix in _ENDINGS else ""} & names[kind]:
                continue
            what = f"the inventory has no {kind} {entry.stem if entry.suffix in _ENDINGS else entry.name}"
            if entry.stem in names[kind]:
                what = f"Ansible reads files with the ending .yml, not {entry.suffix}"
            elif alike := next((n for n in names[kind] if n.lower() == entry.stem.lower()), ""):
                what = f"{what}, but {alike}, in other capitals"
            text = file.read_text(encoding="utf-8", errors="replace")
            if found := sorted(set(re.findall(r"^([a-z]\w+):", text, re.MULTILINE)).intersection(ours)):
                yield f"{short_path(file)} sets {found[0]} for nobody: {what}"


def _paths(sources: Sequence[str]) -> Iterator[Path]:
    return (Path(source) for source in sources if "," not in source)


def _files_of_variables(source: Path) -> Iterator[tuple[str, Path, Path]]:
    """Yield (kind, entry, file) for each file in host_vars and group_vars.

    These folders lie beside the file `source`, or in the folder `source`. The kind is "host" or "group". The
    entry is the file itself, or the folder around it, that is named after the host or group.
    """
    parent = source.parent if source.is_file() else source
    for folder, kind in _FOLDERS.items():
        for entry in sorted((parent / folder).glob("[!.]*[!~]")):
            files = sorted(entry.rglob("[!.]*[!~]")) if entry.is_dir() else [entry]
            yield from ((kind, entry, file) for file in files if file.is_file())
