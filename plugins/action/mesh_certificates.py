"""Sign the keys of all hosts and of their users once, on the controller."""

import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from psfleet.carry.certificates import (
    KINDS,
    Kind,
    Wanted,
    authority,
    public_text,
    remember_own,
    revoke_departed,
    source_addresses,
    stored_or_signed,
)
from trainer.host.content_directory import locked

from ..plugin_utils.actions import ControllerAction

# Signing takes a moment for each host.
SECONDS_TO_WAIT = 300


class ActionModule(ControllerAction):
    """Arguments: `directory`, `user`, `told` (host -> answer of `ssh_identity`) and `days` (kind -> days).

    Returns `authorities` (kind -> public key), `certificates` (host -> kind -> certificate), `revoked`, the
    revocation list for hosts that left the plan, in base64, and `ports` (host of the plan -> port of sshd).
    Check mode lacks certificates that would be new.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        directory, check = Path(arguments["directory"]), self._task.check_mode
        try:
            if check:
                return self._signed(arguments, directory)
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # With the lock, two first deployments at once share one authority, and lose no certificate.
            with locked(directory / ".lock", SECONDS_TO_WAIT):
                return self._signed(arguments, directory)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            return self._failure(str(error))

    def _signed(self, arguments: dict[str, Any], directory: Path) -> dict[str, Any]:
        check, now = self._task.check_mode, time.time()
        certificates: dict[str, dict[str, str]] = {host: {} for host in arguments["told"]}
        keys = {kind: authority(directory, kind, make=not check) for kind in KINDS}
        if (key := keys["user"]) and not check:
            remember_own(directory, key)
        planned = {task["host"] for task in self.variables["cluster_plan"]["tasks"]}
        revoked, changed = revoke_departed(directory, planned, make=not check)
        for host, kind, wanted in self._wanted(arguments):
            if (key := keys[kind]) is None:
                continue
            file = directory / "signed" / host / f"{kind}-cert.pub"
            text, is_new = stored_or_signed(file, key, kind, wanted, now)
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
            "ports": {host: self._port(host) for host in planned},
        }

    def _port(self, host: str) -> int:
        """Return the port at which other hosts reach the host's sshd."""
        of_host = self.variables["hostvars"][host]
        return int(of_host.get("ssh_mesh_port") or of_host.get("ansible_port") or 22)

    def _wanted(self, arguments: dict[str, Any]) -> Iterator[tuple[str, Kind, Wanted]]:
        """Yield the certificates to sign: for each host's key, and for its user's key if it has one."""
        plan, user = self.variables["cluster_plan"], arguments["user"]
        cluster, addresses = plan["cluster_name"], {task["host"]: task["address"] for task in plan["tasks"]}
        for kind in KINDS:
            days = int(arguments["days"][kind])
            for host, answer in arguments["told"].items():
                key = str(answer[f"{kind}_key"])
                if not key:
                    continue
                if kind == "host":
                    # ssh compares host names in lower case, and accepts no other name in the certificate.
                    names = tuple(dict.fromkeys((host.lower(), addresses[host].strip("[]").lower())))
                    yield host, kind, Wanted(key, f"{host} of {cluster}", names, days)
                else:
                    sources = source_addresses(host, addresses[host], answer["addresses"])
                    identity = f"{user}@{host} of {cluster} from {' or '.join(sources)}"
                    yield host, kind, Wanted(key, identity, (cluster,), days, sources)
