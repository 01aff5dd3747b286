"""The mesh `ssh`: signs the keys of all hosts and of their users."""

import time
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from psfleet.carry.certificates import (
    KINDS,
    CertificateContent,
    Kind,
    authority,
    departed_hosts,
    public_text,
    record_own_authority,
    revoke_departed,
    source_addresses,
    stored_or_new,
)
from psfleet.inventory.addresses import port_of_sshd
from trainer.host.wording import first_of

from ...module_utils.content_directory import locked
from ..actions import HostAction

# Signing takes a moment for each host.
SECONDS_TO_WAIT = 300

# {host: its answer to the part `identity` of `host_facts`}
Identities = Mapping[str, Mapping[str, Any]]


def exchange_keys(
    action: HostAction, directory: str, user: str, told: Identities, days: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what all hosts need to log in to each other, signed with the authority in `directory`.

    `told` is {host: its answer to the part `identity` of `host_facts`}, `user` the account that logs in, and
    `days` {kind of certificate: days of validity}. The answer has `changed`, and:

    - `authorities`: {kind: public key}. `certificates`: {host: {kind: certificate}}.
    - `revoked`: the revocation list for hosts that left the plan, in base64.
    - `ports`: {host of the plan: port of its sshd}.
    - `warnings`: a text if hosts left the plan since the last call.

    In check mode, certificates that would be new are missing. Raises OSError, ValueError or
    subprocess.CalledProcessError.
    """
    place, plan, check = Path(directory), action.variables["cluster_plan"], action.check_mode
    wanted = wanted_certificates(plan, user, told, days)
    planned = {task["host"] for task in plan["tasks"]}
    ports = {host: port_of_sshd(host, action.variables["hostvars"][host]) for host in planned}
    if check:
        return {**sign(place, planned, told, wanted, check=True), "ports": ports}
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    # With the lock, two first deployments at once share one authority, and lose no certificate.
    with locked(place / ".lock", SECONDS_TO_WAIT):
        return {**sign(place, planned, told, wanted, check=False), "ports": ports}


def sign(
    directory: Path,
    planned: set[str],
    identities: Identities,
    wanted: Iterable[tuple[str, Kind, CertificateContent]],
    *,
    check: bool,
) -> dict[str, Any]:
    """Sign the wanted certificates; return `exchange_keys`'s answer without the ports.

    `planned` are the hosts of the plan; the certificates of other hosts are revoked. New certificates are
    stored. With `check`, nothing is written, and new certificates are left out.
    """
    now = time.time()
    certificates: dict[str, dict[str, str]] = {host: {} for host in identities}
    keys = {kind: authority(directory, kind, make=not check) for kind in KINDS}
    if (key := keys["user"]) and not check:
        record_own_authority(directory, key)
    departed = departed_hosts(directory, planned)
    revoked, changed = revoke_departed(directory, planned, make=not check)
    for host, kind, certificate in wanted:
        if (key := keys[kind]) is None:
            continue
        file = directory / "signed" / host / f"{kind}-cert.pub"
        text, is_new = stored_or_new(file, key, kind, certificate, now)
        changed |= is_new
        if is_new and check:
            continue
        if is_new:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n", encoding="utf-8")
        certificates[host][kind] = text
    return {
        "changed": changed,
        "authorities": {kind: public_text(key) for kind, key in keys.items() if key},
        "certificates": certificates,
        "revoked": b64encode(revoked).decode(),
        "warnings": [_keeps_psfleet(departed)] if departed else [],
    }


def _keeps_psfleet(departed: Sequence[str]) -> str:
    left = "has left" if len(departed) == 1 else "have left"
    return (
        f"{first_of(departed)} {left} the inventory, and can no longer log in to the other hosts. What "
        "psfleet wrote there stays. To remove it, take it into an inventory again, and: "
        f"ansible-playbook reset.yml --limit {','.join(departed)}"
    )


def wanted_certificates(
    plan: Mapping[str, Any], user: str, identities: Identities, days: Mapping[str, Any]
) -> Iterator[tuple[str, Kind, CertificateContent]]:
    """Yield (host, kind, wanted certificate) for each host's key, and for its user's key if it has one.

    First all certificates of the kind "host", then all of the kind "user", in the order of KINDS. The
    arguments are as in `exchange_keys`; `plan` is the fact cluster_plan.
    """
    cluster, addresses = plan["cluster_name"], {task["host"]: task["address"] for task in plan["tasks"]}
    for kind in KINDS:
        valid_days = int(days[kind])
        for host, answer in identities.items():
            key = str(answer[f"{kind}_key"])
            if not key:
                continue
            if kind == "host":
                # ssh compares host names in lower case, and accepts no other name in the certificate.
                names = tuple(dict.fromkeys((host.lower(), addresses[host].strip("[]").lower())))
                yield host, kind, CertificateContent(key, f"{host} of {cluster}", names, valid_days)
            else:
                sources = source_addresses(host, addresses[host], answer["addresses"])
                identity = f"{user}@{host} of {cluster} from {' or '.join(sources)}"
                yield host, kind, CertificateContent(key, identity, (cluster,), valid_days, sources)
