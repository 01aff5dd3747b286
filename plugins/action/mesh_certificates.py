"""Sign the keys of all hosts and of their users once, on the controller."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from psfleet.carry.certificates import KINDS, Kind, Wanted, address_of, authority, kept_or_signed, public_text

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Arguments: `directory`, `user`, `keys` (kind -> host -> public key, or "") and `days` (kind -> days).

    Returns `authorities` (kind -> public key) and `certificates` (host -> kind -> certificate). A check has
    none where one would be made or signed.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        directory, check, now = Path(arguments["directory"]), self._task.check_mode, time.time()
        certificates: dict[str, dict[str, str]] = {host: {} for host in arguments["keys"]["host"]}
        changed = False
        try:
            keys = {kind: authority(directory, kind, make=not check) for kind in KINDS}
            for host, kind, wanted in self._wanted(arguments):
                if (key := keys[kind]) is None:
                    continue
                file = directory / "signed" / host / f"{kind}-cert.pub"
                text, is_new = kept_or_signed(file, key, kind, wanted, now)
                changed |= is_new
                if is_new and check:
                    continue
                if is_new:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(f"{text}\n", encoding="utf-8")
                certificates[host][kind] = text
        except (OSError, ValueError) as error:
            return self._failure(str(error))
        authorities = {kind: public_text(key) for kind, key in keys.items() if key}
        return {"changed": changed, "authorities": authorities, "certificates": certificates}

    def _wanted(self, arguments: dict[str, Any]) -> Iterator[tuple[str, Kind, Wanted]]:
        """Yield what should be signed: of each host its own key and its user's, where it has them."""
        plan, user = self.variables["cluster_plan"], arguments["user"]
        cluster, addresses = plan["cluster_name"], {task["host"]: task["address"] for task in plan["tasks"]}
        for kind in KINDS:
            days = int(arguments["days"][kind])
            for host, key in arguments["keys"][kind].items():
                if not key:
                    continue
                if kind == "host":
                    # ssh looks for a host's name in small letters, and for nothing else in the certificate.
                    names = tuple(dict.fromkeys((host.lower(), addresses[host].strip("[]").lower())))
                    yield host, kind, Wanted(key, f"{host} of {cluster}", names, days)
                else:
                    source = address_of(addresses[host])
                    identity = f"{user}@{host} of {cluster} from {source or 'anywhere'}"
                    yield host, kind, Wanted(key, identity, (cluster,), days, source)
