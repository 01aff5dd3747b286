"""Collects the WireGuard public keys of all hosts, once on the controller."""

from pathlib import Path
from typing import Any

from psfleet.carry.mesh_keys import read_keys, require_own, write_keys
from trainer.host.wording import first_of

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Arguments: `file`, where keys are stored, and `told` (host -> answer of `wireguard_mesh`).

    Returns `hosts`, as in the fact cluster_mesh, each with its `public_key`; {} in check mode before there
    are keys. Fails if the key of a host in the plan is unknown.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        file, hosts = Path(arguments["file"]), self.variables["cluster_mesh"]["hosts"]
        stored = read_keys(file, hosts)
        reported = {host: str(answer["public_key"]) for host, answer in arguments["told"].items()}
        if self._task.check_mode and not all(reported.values()):
            return {"changed": True, "hosts": {}}
        keys = {**stored, **reported}
        try:
            require_own(keys, hosts)
            if (changed := keys != stored) and not self._task.check_mode:
                write_keys(file, keys)
        except (OSError, ValueError) as error:
            return self._failure(str(error))
        answer: dict[str, Any] = {
            "changed": changed,
            "hosts": {host: {**hosts[host], "public_key": keys[host]} for host in hosts},
        }
        new = [host for host in reported if stored.get(host) != reported[host]]
        left_out = hosts.keys() - reported.keys()
        if new and left_out:
            what = f"{first_of(sorted(left_out))} cannot be reached from {first_of(new)}, whose key is new"
            answer["warnings"] = [f"{what}: deploy to all hosts"]
        return answer
