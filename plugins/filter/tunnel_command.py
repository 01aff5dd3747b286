"""The filter `tunnel_command`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any


def tunnel_command(variables: Mapping[str, Any], port: int) -> str:
    """Return the ssh command that brings a port of a host's loopback address to the one who types it.

    User, address, port, key and options are those by which Ansible reaches the host.
    """
    words = ["ssh", "-N", "-L", f"{port}:127.0.0.1:{port}"]
    for option, name in (("-p", "ansible_port"), ("-i", "ansible_ssh_private_key_file")):
        if variables.get(name):
            words += [option, str(variables[name])]
    user = variables.get("ansible_user") or variables.get("ansible_ssh_user")
    address = str(variables.get("ansible_host") or variables["inventory_hostname"])
    # These are a piece of a command line already.
    options = str(variables.get("ansible_ssh_common_args") or "").strip()
    command = " ".join(part for part in (shlex.join(words), options) if part)
    return f"{command} {shlex.quote(f'{user}@{address}' if user else address)}"


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {"tunnel_command": tunnel_command}
