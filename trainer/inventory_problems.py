"""What is wrong with an inventory, and the file and line to edit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

PARENT = "tf_cluster"

_NAMED_HOSTS = 5
_NAMED_PLACES = 3
_NOT_INVENTORY = (".md", ".txt", ".rst", ".cfg", ".retry", ".pyc", ".swp", ".bak", ".orig", "~")
_VARIABLE_FOLDERS = ("host_vars", "group_vars")
_INI_ASSIGNMENT = re.compile(r"(?:^|\s)([A-Za-z_]\w*)\s*=")


@dataclass(frozen=True)
class InventoryProblem:
    """What is wrong, and what to look for to mend it.

    `variable` and `hosts` say whose definition is at fault; without `variable` the list of hosts is.
    `everywhere`: one value for the whole cluster is the cure. `cure`: what to do where no file is at fault.
    """

    what: str
    variable: str = ""
    hosts: tuple[str, ...] = ()
    everywhere: bool = False
    cure: str = ""


class InventoryError(ValueError):
    """An inventory that cannot be used; `problems` holds everything that is wrong with it."""

    def __init__(self, problems: Sequence[InventoryProblem]) -> None:
        """Keep the problems, and say them all in the message."""
        super().__init__("; ".join(problem.what for problem in problems))
        self.problems = tuple(problems)


def named(hosts: Sequence[str]) -> str:
    """Return the hosts in words, only the first by name where there are many."""
    if len(hosts) <= _NAMED_HOSTS:
        return ", ".join(hosts)
    return f"{len(hosts)} hosts ({', '.join(hosts[: _NAMED_HOSTS - 2])}, ...)"


@dataclass(frozen=True)
class Definition:
    """Where a variable gets a value: `owner` is a host or a group."""

    owner: str
    name: str
    file: Path
    line: int


class InventoryFiles:
    """The files below the inventory, to find where a variable is defined. They are read when first asked."""

    def __init__(
        self,
        sources: Iterable[str],
        groups_of: Mapping[str, Sequence[str]],
        command_line: Mapping[str, object],
    ) -> None:
        """Take the inventory's `sources` (files or folders), each host's groups, and what -e sets."""
        self._sources = [Path(source) for source in sources if "," not in source]
        self._groups_of = groups_of
        self._command_line = command_line

    def cure(self, problem: InventoryProblem) -> str:
        """Return what to do, in words: which file to edit, and at which line."""
        if problem.cure:
            return problem.cure
        if not problem.variable:
            return f"edit {shown(self.hosts_file)}"
        if problem.variable in self._command_line:
            return "given with -e on the command line"
        places = [_place(definition) for definition in self._definitions_for(problem)]
        if problem.everywhere:
            common = self.hosts_file.parent / "group_vars" / f"{PARENT}.yml"
            return f"set it in {shown(common)} alone, not in {_some(places) or shown(self.hosts_file)}"
        return f"edit {_some(places) or shown(self.hosts_file)}"

    @property
    def hosts_file(self) -> Path:
        """The file that lists the hosts, as far as one can tell; the inventory itself where there is none."""
        files = [file for file in self._inventory_files() if file.parent.name not in _VARIABLE_FOLDERS]
        named_hosts = [file for file in files if file.stem == "hosts"]
        return next(iter([*named_hosts, *files, *self._sources]), Path("inventory"))

    def _definitions_for(self, problem: InventoryProblem) -> list[Definition]:
        found: dict[Definition, None] = {}
        by_owner = {(found.owner, found.name): found for found in reversed(self._definitions)}
        for host in problem.hosts:
            owners = [host, *self._groups_of.get(host, ()), "all"]
            definition = next(
                (
                    by_owner[owner, problem.variable]
                    for owner in owners
                    if (owner, problem.variable) in by_owner
                ),
                None,
            )
            if definition:
                found[definition] = None
        return list(found)

    @cached_property
    def _definitions(self) -> list[Definition]:
        files = self._inventory_files()
        folders = sorted(file for file in files if set(file.parts) & set(_VARIABLE_FOLDERS))
        return [found for file in [*folders, *files] for found in _definitions_in(file)]

    def _inventory_files(self) -> list[Path]:
        files: dict[Path, None] = {}
        for source in self._sources:
            folder = source if source.is_dir() else source.parent
            if source.is_file():
                files[source] = None
            roots = [folder] if source.is_dir() else [folder / name for name in _VARIABLE_FOLDERS]
            for root in roots:
                files |= dict.fromkeys(sorted(file for file in root.rglob("*") if file.is_file()))
        return [
            file for file in files if not file.name.startswith(".") and not file.name.endswith(_NOT_INVENTORY)
        ]


def _definitions_in(file: Path) -> Iterator[Definition]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    owner = _owner_of(file)
    if file.suffix in {".yml", ".yaml", ".json"} or owner:
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError:
            return
        for path, line in _yaml_keys(root, (owner,) if owner else ()):
            above = [key for key in path[:-1] if key != "vars"]
            yield Definition(above[-1] if above else "all", path[-1], file, line)
    else:
        yield from _ini_definitions(file, text)


def _owner_of(file: Path) -> str:
    """Return node1 for host_vars/node1.yml and for host_vars/node1/ports.yml, "" for a list of hosts."""
    for folder in _VARIABLE_FOLDERS:
        if folder in file.parts:
            entry = Path(file.parts[file.parts.index(folder) + 1])
            return entry.stem if entry.suffix in {".yml", ".yaml", ".json"} else entry.name
    return ""


def _yaml_keys(node: yaml.Node | None, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            yield here, key.start_mark.line + 1
            yield from _yaml_keys(value, here)


def _ini_definitions(file: Path, text: str) -> Iterator[Definition]:
    section = "all"
    variables = False
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.strip()
        if content.startswith("[") and content.endswith("]"):
            section, _, kind = content[1:-1].partition(":")
            variables = kind == "vars"
        elif content and not content.startswith(("#", ";")):
            owner = section if variables else content.split()[0]
            yield from (Definition(owner, name, file, number) for name in _INI_ASSIGNMENT.findall(content))


def _place(definition: Definition) -> str:
    return f"{shown(definition.file)}:{definition.line}"


def _some(places: Sequence[str]) -> str:
    more = len(places) - _NAMED_PLACES
    return ", ".join(places[:_NAMED_PLACES]) + (f" and {more} more" if more > 0 else "")


def shown(file: Path) -> str:
    """Return the path as people would type it in the directory they are in."""
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


def describe(problems: Sequence[InventoryProblem], files: InventoryFiles) -> str:
    """Return the message that lists every problem with its cure."""
    count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = [f"The inventory has {count}. Nothing was touched."]
    for number, problem in enumerate(problems, start=1):
        lines += [f"{number}. {problem.what}", f"   {files.cure(problem)}"]
    return "\n".join(lines)
