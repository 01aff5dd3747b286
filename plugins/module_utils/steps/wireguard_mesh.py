"""Creates one host's key for the mesh, or puts up the host's side of the mesh.

Without `hosts` it ensures a key, which never leaves the host, and returns its public half. With `hosts` it
puts up the interface, with all other hosts as its only peers. It examines the present interface, and so
repairs changes.
"""

from __future__ import annotations

from pathlib import Path

from ..host.host_facts import SECONDS_TO_ANSWER, ask, text_of
from ..host.mesh import CONFIGURATION, Peer, configuration, dump, mesh_problem, of_interface
from ..host.safe_directory import opened, write
from ..host.task_units import show_units, systemctl
from ..step import Step

OPTIONS = {
    "configuration": {"type": "path", "required": True, "description": "Directory of psfleet's files."},
    "host": {"required": True, "description": "The host's name in the plan."},
    "port": {"type": "int", "default": 0, "description": "The port at which all hosts listen."},
    "hosts": {
        "type": "dict",
        "default": {},
        "description": "`address` in the mesh, `endpoint` and `public_key` of each host of the plan.",
    },
    "unit": {"default": "", "description": "Content of its unit."},
}

RETURN = r"""
public_key: {returned: always, type: str, description: "Empty in check mode before there is a key."}
"""

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


def run(step: Step) -> None:
    """Take the step."""
    values = step.params
    place = WireguardMesh(Path(values["configuration"]))
    lacks, public, changed = not place.key_file.exists(), "", False
    try:
        if lacks and not step.check_mode:
            place.make_key()
        if key := text_of(place.key_file).strip():
            public = output_of("sh", "-c", 'wg pubkey < "$1"', "sh", str(place.key_file))
        if key and (hosts := values["hosts"]):
            own = hosts.pop(values["host"])
            peers = [Peer(host, **hosts[host]) for host in sorted(hosts)]
            wanted = configuration(key, own["address"], values["port"], peers)
            changed = place.put_up(wanted, values["unit"], check_mode=step.check_mode)
    except (OSError, ValueError) as error:
        step.fail_json(msg=f"{values['host']} cannot be part of the mesh: {error}")
    step.exit_json(changed=lacks or changed, public_key=public)
