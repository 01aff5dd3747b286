"""The WireGuard public keys of all hosts, stored on the controller for deployments to only some hosts."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from plugins.module_utils.network.mesh import KEY
from trainer.contract.rules import as_given
from trainer.host.task_traces import read_object
from trainer.host.wording import first_of, grouped


def read_keys(file: Path, hosts: Collection[str]) -> dict[str, str]:
    """Return {host: public key} of those `hosts` whose valid key is stored in `file`.

    Return {} if the file is missing or damaged.
    """
    kept = {host: str(key) for host, key in read_object(file).items()}
    return {host: key for host, key in kept.items() if host in hosts and KEY.fullmatch(key)}


def write_keys(file: Path, keys: Mapping[str, str]) -> None:
    """Store {host: public key} in `file`, in place of what it contained. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(json.dumps(keys, indent=4, sort_keys=True) + "\n", encoding="utf-8")
    fresh.replace(file)


def require_distinct_keys(keys: Mapping[str, str], hosts: Collection[str]) -> None:
    """Raise ValueError if a key is invalid or belongs to two hosts, or if one of `hosts` has no key.

    `keys` is {host: public key}; hosts in `keys` that are not in `hosts` are checked, too.
    """
    for host, key in keys.items():
        if not KEY.fullmatch(key):
            raise ValueError(f"{host} reported {as_given(key)} as its WireGuard public key")
    for names in grouped((key, host) for host, key in keys.items()).values():
        if len(names) > 1:
            raise ValueError(
                f"{first_of(names)} reported the same WireGuard public key; expected one each: on the host "
                "that is a copy of another, remove the folder mesh in trainer_configuration_directory"
            )
    if lacking := [host for host in hosts if host not in keys]:
        raise ValueError(
            f"the WireGuard public key of {first_of(lacking)} is not known here: deploy to all hosts once"
        )
