"""The mesh `wireguard`: collects the public keys of all hosts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psfleet.carry.mesh_keys import read_keys, require_distinct_keys, write_keys
from trainer.host.wording import first_of

from ..actions import HostAction


def exchange_keys(action: HostAction, file: str, told: Mapping[str, object]) -> dict[str, Any]:
    """Store the keys that hosts report; return `hosts`, as in the fact cluster_mesh, with their `public_key`.

    The answer also has `changed`, and `warnings` if a new key does not get to all hosts. `file` is where keys
    are stored, and `told` is {host: public key that it reports, "" without a key}. In check mode, `hosts` is
    {} if a host has no key yet. Raises ValueError if the key of a host in the plan is unknown.
    """
    path, hosts = Path(file), action.variables["cluster_mesh"]["hosts"]
    check = action.check_mode
    stored = read_keys(path, hosts)
    reported = {host: str(key) for host, key in told.items()}
    if check and not all(reported.values()):
        return {"changed": True, "hosts": {}}
    keys = {**stored, **reported}
    require_distinct_keys(keys, hosts)
    if (changed := keys != stored) and not check:
        write_keys(path, keys)
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
