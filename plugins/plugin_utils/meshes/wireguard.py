"""The mesh `wireguard`: collects the public keys of all hosts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psfleet.carry.mesh_keys import read_keys, require_distinct_keys, write_keys
from trainer.host.wording import first_of

from ..actions import HostAction


def exchange_keys(action: HostAction, file: str, told: Mapping[str, object]) -> dict[str, Any]:
    """Store the public keys of the hosts in `file`; return `hosts`, `changed` and perhaps `warnings`.

    - `hosts`: the hosts of the fact cluster_mesh, each with its `public_key`, reported now or stored before.
      In check mode {} if a host in `told` has no key yet.
    - `warnings`: only if a key is new, and hosts that are not in `told` would miss it.

    `told` is {host: public key that it reports, "" without a key}. Raises ValueError if the key of a host in
    cluster_mesh is neither reported nor stored, or if two hosts have the same key.
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
