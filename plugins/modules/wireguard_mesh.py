"""Creates one host's key for the mesh, or puts up the host's side of the mesh.

Without `hosts` it ensures a key, which never leaves the host, and returns its public half. With `hosts` it
puts up the interface, with all other hosts as its only peers. It examines the present interface, and so
repairs changes.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: wireguard_mesh
short_description: Creates one host's key for the mesh, or puts up the host's side of the mesh
description:
  - Without V(hosts) it ensures a key, which never leaves the host, and returns its public half.
  - With V(hosts) it puts up the interface, with all other hosts as its only peers.
  - It examines the present interface, and so repairs changes.
author: psfleet (@psfleet)
options:
  configuration:
    description: Directory of psfleet's files.
    type: path
    required: true
  host:
    description: The host's name in the plan.
    type: str
    required: true
  port:
    description: The port at which all hosts listen.
    type: int
    default: 0
  hosts:
    description: V(address) in the mesh, V(endpoint) and V(public_key) of each host of the plan.
    type: dict
    default: {}
  unit:
    description: Content of its unit.
    type: str
    default: ''
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: Make the key of the host
  psfleet.cluster.wireguard_mesh:
    configuration: /etc/psfleet
    host: "{{ inventory_hostname }}"
"""

RETURN = r"""
public_key:
  returned: always
  type: str
  description: Empty in check mode before there is a key.
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.facts.host_facts import SECONDS_TO_ANSWER, ask
from ..module_utils.host.safe_directory import opened, write
from ..module_utils.host.task_units import show_units, systemctl
from ..module_utils.host.whole_files import text_of
from ..module_utils.module import made
from ..module_utils.network.mesh import CONFIGURATION, Peer, configuration, dump, mesh_problem, of_interface

ARGUMENTS: dict[str, Any] = {
    "configuration": {"type": "path", "required": True},
    "host": {"required": True},
    "port": {"type": "int", "default": 0},
    "hosts": {"type": "dict", "default": {}},
    "unit": {"default": ""},
}


UNIT = "psfleet-mesh.service"
PROPERTIES = ("ActiveState", "UnitFileState", "NeedDaemonReload")
STANDS = ("active", "enabled", "no")


class MeshError(ValueError):
    """The reason why there is no mesh."""


def output_of(*command: str) -> str:
    """Return the output of a command. Raises MeshError if it fails."""
    status, printed, complaint = ask(command, SECONDS_TO_ANSWER)
    if status:
        raise MeshError(f"{' '.join(command)}: {complaint.strip()}")
    return printed.strip()


class WireguardMesh:
    """The files of this host's side of the mesh, in directories of root's."""

    def __init__(self, directory: Path, units: Path = Path("/etc/systemd/system")) -> None:
        self.file, self.unit = directory / CONFIGURATION, units / UNIT
        self.key_file = self.file.with_name("key")

    def make_key(self) -> None:
        """Create the private key."""
        self._write(self.key_file, output_of("wg", "genkey") + "\n", 0o600)

    def put_up(self, wanted: str, unit: str, *, check_mode: bool) -> bool:
        """Bring files and interface to the wanted state; return whether anything had to change.

        Raises MeshError if the interface is not right afterwards.
        """
        there, unit_there = text_of(self.file), text_of(self.unit)
        (shown,) = show_units([UNIT], PROPERTIES)
        stands = (shown["ActiveState"], shown["UnitFileState"], shown["NeedDaemonReload"]) == STANDS
        if stands and (there, unit_there) == (wanted, unit) and not mesh_problem(wanted, dump()):
            return False
        if check_mode:
            return True
        self._write(self.file, wanted, 0o600)
        self._write(self.unit, unit, 0o644)
        systemctl("daemon-reload")
        systemctl("enable", "--quiet", UNIT)
        # If the interface itself is right, it only gets other peers, and connections continue.
        same = stands and unit == unit_there and of_interface(there) == of_interface(wanted)
        systemctl("reload" if same and dump() else "restart", UNIT)
        if problem := mesh_problem(wanted, dump()):
            raise MeshError(f"{problem}; `systemctl status {UNIT}` there says more")
        return True

    def _write(self, path: Path, content: str, mode: int) -> None:
        with opened(path.parent, make=True) as folder:
            write(folder, path.name, content.encode(), mode)


def run(module: AnsibleModule) -> None:
    """Do it, and answer."""
    values = module.params
    place = WireguardMesh(Path(values["configuration"]))
    lacks, public, changed = not place.key_file.exists(), "", False
    try:
        if lacks and not module.check_mode:
            place.make_key()
        if key := text_of(place.key_file).strip():
            public = output_of("sh", "-c", 'wg pubkey < "$1"', "sh", str(place.key_file))
        if key and (hosts := values["hosts"]):
            own = hosts.pop(values["host"])
            peers = [Peer(host, **hosts[host]) for host in sorted(hosts)]
            wanted = configuration(key, own["address"], values["port"], peers)
            changed = place.put_up(wanted, values["unit"], check_mode=module.check_mode)
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"{values['host']} cannot be part of the mesh: {error}")
    module.exit_json(changed=lacks or changed, public_key=public)


def main() -> None:
    """Run the module."""
    run(made(ARGUMENTS))


if __name__ == "__main__":
    main()
