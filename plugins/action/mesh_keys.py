"""Gather the public keys of all hosts' WireGuard once, on the controller."""

from pathlib import Path
from typing import Any

from psfleet.carry.mesh_keys import read_keys, require_own, write_keys
from trainer.host.wording import first_of

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Arguments: `file`, where they are kept, and `told` (host -> answer of `wireguard_mesh`).

    Returns `hosts`, as the fact cluster_mesh has them, each with its `public_key`; none in a check before the
    keys are made. Fails for a host of the plan whose key is not known.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        file, hosts = Path(arguments["file"]), self.variables["cluster_mesh"]["hosts"]
        kept = read_keys(file, hosts)
        told = {host: str(answer["public_key"]) for host, answer in arguments["told"].items()}
        if self._task.check_mode and not all(told.values()):
            return {"changed": True, "hosts": {}}
        keys = {**kept, **told}
        try:
            require_own(keys, hosts)
            if (changed := keys != kept) and not self._task.check_mode:
                write_keys(file, keys)
        except (OSError, ValueError) as error:
            return self._failure(str(error))
        answer: dict[str, Any] = {
            "changed": changed,
            "hosts": {host: {**hosts[host], "public_key": keys[host]} for host in hosts},
        }
        new, left_out = [host for host in told if kept.get(host) != told[host]], hosts.keys() - told.keys()
        if new and left_out:
            what = f"{first_of(sorted(left_out))} cannot be reached from {first_of(new)}, whose key is new"
            answer["warnings"] = [f"{what}: deploy to all hosts"]
        return answer
