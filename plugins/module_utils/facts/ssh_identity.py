"""Reads the SSH keys of an account of this host, and of the host itself."""

from __future__ import annotations

import grp
import pwd
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..login_proof import proof_holds
from ..people import deployed_by

HOST_KEY = Path("/etc/ssh/ssh_host_ed25519_key.pub")
KEY = "id_ed25519"


def is_prepared(key: Path, user: str, accounts: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether the accounts are as wanted, and the mode, owner and group of the private key, too.

    `key` is its file, which must belong to root and the group `user`, with mode 0640. `accounts` is {name:
    wanted `home` and `shell`}. A missing account or file gives False.
    """
    try:
        entries = {name: pwd.getpwnam(name) for name in accounts}
        status, group = key.stat(), grp.getgrnam(user).gr_gid
    except (OSError, KeyError):
        return False
    as_wanted = all(
        {"home": entry.pw_dir, "shell": entry.pw_shell} == accounts[name] for name, entry in entries.items()
    )
    return as_wanted and (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (0, group, 0o640)


def addresses_of(name: str) -> list[str]:
    """Return the IP addresses to which a name resolves on this host, sorted; [] if it does not resolve.

    Loopback addresses, such as the one that Debian gives to a host's own name, are left out.
    """
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(name.strip("[]"), None)}
    except OSError:
        return []
    return sorted(address for address in map(str, found) if not address.startswith(("127.", "::1")))


def text_of(file: Path) -> str:
    """Return the content of a file that root owns, stripped of white space; "" if it does not exist."""
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""


def look_at_identity(values: Mapping[str, Any], _: Callable[[str], None]) -> dict[str, Any]:
    """Return what a host has for logins by SSH, for the part `identity` of `host_facts`.

    `values` are the arguments of this part. The answer has:

    - `host_key`, `user_key`: the public keys of sshd and of the account.
    - `prepared`: whether the accounts and the key are as wanted.
    - `proven`: whether the last proof of the login still holds.
    - `authority`, `cluster`, `certificate`: the authority's public key, the cluster's name and the account's
      certificate, as the last deployment wrote them.
    - `deployed_by`: the person of the last deployment.
    - `addresses`: the IP addresses that the host's `name` has here.

    A text that does not exist yet is "". Raises ValueError if sshd has no key.
    """
    home, user = Path(values["home"]), values["user"]
    key = home / ".ssh" / KEY
    try:
        host_key = HOST_KEY.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(str(error)) from error
    return {
        "user_key": text_of(key.with_suffix(".pub")),
        "host_key": host_key,
        "prepared": key.with_suffix(".pub").exists() and is_prepared(key, user, values["accounts"]),
        "proven": proof_holds(home / "proven"),
        "authority": text_of(home / "user_ca.pub"),
        "cluster": text_of(home / "principals"),
        "certificate": text_of(home / ".ssh" / f"{KEY}-cert.pub"),
        "deployed_by": deployed_by(home.parent),
        "addresses": addresses_of(values["name"]),
    }
