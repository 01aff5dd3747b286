"""Gives each host what it needs of the other hosts' keys; runs once, on the controller."""

import subprocess
from collections.abc import Callable
from typing import Any

from ..plugin_utils.actions import ControllerAction
from ..plugin_utils.meshes import ssh, wireguard

MESHES: dict[str, Callable[..., dict[str, Any]]] = {
    "ssh": ssh.exchange_keys,
    "wireguard": wireguard.exchange_keys,
}


class ActionModule(ControllerAction):
    """Returns the result of `exchange_keys` of the mesh "ssh" or "wireguard"; fails with the error it raises.

    Takes `mesh`, the name of the mesh, and the arguments of `exchange_keys`.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return MESHES[arguments.pop("mesh")](self, **arguments)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            return self._failure(str(error))
