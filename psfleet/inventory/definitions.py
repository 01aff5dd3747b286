"""Finds the file and line that define a variable of the inventory, so that messages can name them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible._internal._datatag._tags import Origin
from ansible.inventory.helpers import sort_groups
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.plugins import get_vars_from_inventory_sources

from psfleet.inventory.inventory_files import inventory_files
from psfleet.inventory.problems import PARENT, InventoryProblem, short_path
from trainer.host.wording import first_of


@dataclass(frozen=True)
class Definitions:
    """Knows where an inventory's variables are defined: Ansible tags each name with its file and line.

    `sources` are the files, folders and host lists of the inventory; `command_line` is what -e sets.
    """

    sources: Sequence[str]
    inventory: InventoryManager
    loader: DataLoader
    command_line: Mapping[str, object]

    def cure(self, problem: InventoryProblem) -> str:
        """Return the advice for a problem: which file to edit, and at which line.

        A `cure` of the problem itself has precedence. Without a known definition, the advice names the file
        of the hosts. Examples: "edit inventory/cluster/hosts.yml:12", "given with -e on the command line".
        """
        if problem.cure:
            return problem.cure
        if problem.variable.partition(".")[0] in self.command_line:
            return "given with -e on the command line"
        places = [self._place(host, problem.variable) for host in problem.hosts if problem.variable]
        found = first_of([*dict.fromkeys(filter(None, places))], 3) or short_path(self._hosts_file)
        if problem.everywhere:
            common = self._hosts_file.parent / "group_vars" / f"{PARENT}.yml"
            return f"set it in {short_path(common)} alone, not in {found}"
        return f"edit {found}"

    @property
    def _hosts_file(self) -> Path:
        """The file that probably lists the hosts: named hosts, else the first file, else the first source.

        Path("inventory") if there is none of these.
        """
        sources = [Path(source) for source in self.sources if "," not in source]  # no list of hosts
        files = [file for source in sources for file in inventory_files(source)]
        named_hosts = [file for file in files if file.stem == "hosts"]
        return next(iter([*named_hosts, *files, *sources]), Path("inventory"))

    def _place(self, host: str, variable: str) -> str:
        """Return "file:line" of the definition that has precedence for a host; "" if it is unknown."""
        origins = (Origin.get_tag(name) for layer in self._layers(host) for name in _names(layer, variable))
        return next((f"{short_path(Path(at.path))}:{at.line_num}" for at in origins if at and at.path), "")

    def _layers(self, name: str) -> Iterator[Mapping[str, Any]]:
        """Yield the variables of the host `name` from each of Ansible's sources, by descending precedence."""
        host = self.inventory.get_host(name)
        groups = [*reversed(sort_groups(host.get_groups()))]
        for owners in ([host], groups):
            for owner in owners:
                yield get_vars_from_inventory_sources(self.loader, self.sources, [owner], "task")
            for owner in owners:
                yield owner.vars


def _names(content: object, wanted: str) -> Iterator[str]:
    """Yield the keys of `content` that lead to the variable `wanted` or to a part of it, innermost first.

    Example: for trainer_programs.mnist, the keys "mnist" and "trainer_programs". Nothing if no key does.
    """
    parts = content if isinstance(content, Mapping) else {}
    for name in sorted(parts, key=lambda name: -len(str(name))):  # v1.2 before v1
        if f"{wanted}.".startswith(f"{name}."):
            yield from _names(parts[name], wanted.removeprefix(f"{name}."))
            yield name
