"""The filter `tunnel_command`."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any


def tunnel_command(variables: Mapping[str, Any], port: int) -> str:
    """Return the ssh command that brings a port of a host's loopback address to the one who types it.

    User, address, port, key and options are those by which Ansible reaches the host. Where it knows two names
    of a variable, the one with `ssh` wins, as in its ssh plugin.
    """
    words = ["ssh", "-N", "-L", f"{port}:127.0.0.1:{port}"]
    for option, name in (("-p", "port"), ("-i", "private_key_file")):
        value = _value(variables, name)
        if value:
            words += [option, value]
    user = _value(variables, "user")
    address = _value(variables, "host") or str(variables["inventory_hostname"])
    # These are pieces of a command line already.
    options = [
        str(variables.get(name) or "").strip()
        for name in ("ansible_ssh_common_args", "ansible_ssh_extra_args")
    ]
    command = " ".join(part for part in (shlex.join(words), *options) if part)
    return f"{command} {shlex.quote(f'{user}@{address}' if user else address)}"


def _value(variables: Mapping[str, Any], name: str) -> str:
    return str(variables.get(f"ansible_ssh_{name}") or variables.get(f"ansible_{name}") or "")


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {"tunnel_command": tunnel_command}
