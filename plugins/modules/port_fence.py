"""Puts up the fence of one host, or takes it down, in one round trip.

It examines the present rules, not what a deployment changed. So it also repairs damage. The old rules are in
force until the new rules are. No task is started, stopped or restarted.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: port_fence
short_description: Puts up the fence of one host, or takes it down, in one round trip
description:
  - It examines the present rules, not what a deployment changed. So it also repairs damage.
  - The old rules are in force until the new rules are.
  - No task is started, stopped or restarted.
author: psfleet (@psfleet)
options:
  state:
    description: V(present) puts the fence up, V(absent) takes it down.
    type: str
    choices:
      - present
      - absent
    default: present
  host:
    description: The host's name in the plan.
    type: str
    required: true
  tasks:
    description: All tasks of the plan.
    type: list
    elements: dict
    required: true
  user:
    description: The user that runs the tasks.
    type: str
    required: true
  may_reach:
    description: Further places that tasks may reach, as in V(trainer_program_may_reach).
    type: list
    elements: str
    default: []
  mesh:
    description: Whether hosts reach each other only through V(wireguard_mesh). If false, an existing
      mesh is taken down.
    type: bool
    default: false
  configuration:
    description: The configuration directory on the host, which gets the rules.
    type: path
    required: true
  unit:
    description: The content of the unit psfleet-fence.service.
    type: str
    required: true
  nftables_drop_in:
    description: The content of the drop-in for nftables.service.
    type: str
    required: true
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: Take the fence down
  psfleet.cluster.port_fence:
    state: absent
    host: "{{ inventory_hostname }}"
    tasks: "{{ cluster_plan.tasks }}"
    user: psfleet
    configuration: /etc/psfleet
    unit: ""
    nftables_drop_in: ""
"""

RETURN = r"""
changed_paths:
  returned: always
  type: list
  description: Paths that were written, changed or removed.
  elements: str
"""

import json
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host.safe_directory import opened, write
from ..module_utils.host.task_units import RUN_JOBS, show_units, systemctl
from ..module_utils.host_places import remove_tree
from ..module_utils.module import make_module
from ..module_utils.network.fence_rules import Endpoint, Fence, ruleset, unit_drop_in
from ..module_utils.network.fence_state import (
    RECORD,
    RULES,
    FenceError,
    UnknownUserError,
    difference,
    live_table,
    remove_table,
    survey,
    table_in_file,
)
from ..module_utils.network.mesh import CONFIGURATION, INTERFACE

ARGUMENTS: dict[str, Any] = {
    "state": {"choices": ["present", "absent"], "default": "present"},
    "host": {"required": True},
    "tasks": {"type": "list", "elements": "dict", "required": True},
    "user": {"required": True},
    "may_reach": {"type": "list", "elements": "str", "default": []},
    "mesh": {"type": "bool", "default": False},
    "configuration": {"type": "path", "required": True},
    "unit": {"required": True},
    "nftables_drop_in": {"required": True},
}


UNIT = "psfleet-fence.service"
NFTABLES = "nftables.service"
PROPERTIES = ("ActiveState", "UnitFileState", "NeedDaemonReload")
OPEN = (
    "port_fence_enabled is false: anyone who reaches the ports of this host's tasks can run programs there. "
    "Keep the hosts in a separate network, or fence them by other means (docs/security.md)."
)


class PortFence:
    """The files of a fence: rules and record in `configuration`, units and drop-ins in `units`."""

    def __init__(self, configuration: Path, units: Path = Path("/etc/systemd/system")) -> None:
        self.rules, self.record, self.unit = configuration / RULES, configuration / RECORD, units / UNIT
        self.nftables_drop_in = units / f"{NFTABLES}.d" / "psfleet-fence.conf"
        self.mesh = [units / "psfleet-mesh.service", (configuration / CONFIGURATION).parent]
        self.task_drop_ins = [units / f"psfleet-{job}@.service.d" / "fence.conf" for job in RUN_JOBS]

    def contents(self, fence: Fence, values: Mapping[str, Any]) -> dict[Path, str]:
        """Return {path: content} of all files of the fence; `values` are the module's arguments."""
        return {
            self.rules: ruleset(fence),
            self.record: json.dumps(fence.to_json(), indent=4) + "\n",
            self.unit: values["unit"],
            self.nftables_drop_in: values["nftables_drop_in"],
            **dict.fromkeys(self.task_drop_ins, unit_drop_in(fence)),
        }

    def put_up(self, contents: Mapping[Path, str], *, check_mode: bool) -> list[Path] | None:
        """Make the files, the rules and the units as `contents` say; return None if everything was right.

        Otherwise return the files that were written, or in check mode would be; [] if only the rules or the
        units were wrong. Raises FenceError if nft rejects the rules; then nothing has changed.
        """
        with tempfile.TemporaryDirectory() as folder:
            rules = Path(folder) / RULES
            rules.write_text(contents[self.rules], encoding="utf-8")
            wanted = table_in_file(rules)
        stale = [path for path, content in contents.items() if content_of(path) != content]
        shown = show_units([UNIT, NFTABLES], PROPERTIES)
        stands = (shown[0]["ActiveState"], shown[0]["UnitFileState"]) == ("active", "enabled")
        unread = any(unit["NeedDaemonReload"] == "yes" for unit in shown)
        if stands and not (stale or unread or difference(wanted, live_table())):
            return None
        if not check_mode:
            for path in stale:
                with opened(path.parent, make=True) as folder:
                    write(folder, path.name, contents[path].encode())
            systemctl("daemon-reload")
            systemctl("enable", "--quiet", UNIT)
            systemctl("reload-or-restart", UNIT)
            if problem := difference(wanted, live_table()):
                raise FenceError(f"{problem}; `systemctl status {UNIT}` there says more")
        return stale

    def remove_mesh(self, *, check_mode: bool) -> list[Path]:
        """Remove the WireGuard mesh of an earlier deployment; return the removed paths, [] if there is none.

        In check mode, return what would be removed.
        """
        present = [path for path in self.mesh if path.exists()]
        if present and not check_mode:
            systemctl("disable", "--quiet", "--now", self.mesh[0].name)
            for path in present:
                remove_tree(path)
            systemctl("daemon-reload")
        return present

    def take_down(self, *, check_mode: bool) -> list[Path] | None:
        """Remove the fence; return the removed files; None if there was no fence.

        In check mode, return what would be removed. [] means that only the rules in the kernel were removed.
        """
        drop_ins = [path for path in (*self.task_drop_ins, self.nftables_drop_in) if path.exists()]
        own = [path for path in (self.unit, self.rules, self.record) if path.exists()]
        if not (drop_ins or own or live_table()):
            return None
        if not check_mode:
            # Remove the tasks' drop-ins first: tasks would stop together with a unit that they require.
            remove(drop_ins)
            systemctl("daemon-reload")
            systemctl("disable", "--quiet", "--now", UNIT)
            remove(own)
            systemctl("daemon-reload")
            remove_table()
        return drop_ins + own


def content_of(path: Path) -> str | None:
    """Return the text of a file; None if it does not exist, or if it is a link or no regular file."""
    return path.read_text(encoding="utf-8") if path.is_file() and not path.is_symlink() else None


def remove(paths: list[Path]) -> None:
    """Remove files, and their directories that are empty then; a missing file raises FileNotFoundError."""
    for path in paths:
        path.unlink()
        with suppress(OSError):
            path.parent.rmdir()


def run(module: AnsibleModule) -> None:
    """Put up the fence or take it down, as `state` says, and exit with the answer.

    In check mode nothing is changed, and the answer has what would be changed.
    """
    values = module.params
    place = PortFence(Path(values["configuration"]))
    try:
        if values["state"] == "absent":
            module.warn(OPEN)
            paths = place.take_down(check_mode=module.check_mode)
        else:
            tasks = tuple(
                Endpoint(task["host"], task["address"], int(task["port"])) for task in values["tasks"]
            )
            mesh = INTERFACE if values["mesh"] else ""
            wanted = Fence(values["host"], values["user"], tasks, tuple(values["may_reach"]), mesh=mesh)
            paths = place.put_up(place.contents(survey(wanted), values), check_mode=module.check_mode)
        mesh_paths = [] if values["mesh"] else place.remove_mesh(check_mode=module.check_mode)
    except (OSError, ValueError) as error:
        if module.check_mode and isinstance(error, UnknownUserError):  # a deployment creates this user
            module.exit_json(changed=True, changed_paths=[])
        module.fail_json(msg=f"{values['host']} cannot be fenced: {error}")
    changed = paths is not None or bool(mesh_paths)
    module.exit_json(changed=changed, changed_paths=[str(path) for path in [*(paths or ()), *mesh_paths]])


def main() -> None:
    """Run the module with the arguments from Ansible; exit with its answer, or with a failure."""
    run(make_module(ARGUMENTS))


if __name__ == "__main__":
    main()
