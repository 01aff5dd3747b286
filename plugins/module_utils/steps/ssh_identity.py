"""Gives an account of this host an SSH key that it can use but not change; returns that key and the host's.

Key and directories belong to root and are readable by the account's group. The private key never leaves the
host.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ..host.people import deployed_by
from ..step import Step

OPTIONS = {
    "home": {
        "type": "path",
        "required": True,
        "description": "The account's home, owned by root.",
    },
    "user": {"required": True, "description": "The account, and its group."},
    "comment": {"required": True, "description": "Comment of the public key."},
    "name": {
        "required": True,
        "description": "The name by which other hosts reach this one.",
    },
    "accounts": {
        "type": "dict",
        "default": {},
        "description": "Accounts that a deployment creates: name -> `home` and `shell`.",
    },
    "make": {"type": "bool", "default": True, "description": "Create what is missing."},
}

RETURN = r"""
user_key: {returned: always, type: str, description: "The account's public key; empty before it exists."}
host_key: {returned: always, type: str, description: The public key of this host's sshd.}
prepared: {returned: always, type: bool, description: "Whether accounts and key are as wanted."}
authority: {returned: always, type: str, description: "Public key of the authority that is trusted here."}
cluster: {returned: always, type: str, description: "The cluster whose users are admitted."}
certificate: {returned: always, type: str, description: "The account's certificate; empty at first."}
deployed_by: {returned: always, type: str, description: "Who deployed here last, empty if unknown."}
addresses: {returned: always, type: list, description: "The addresses of `name` here, without loopback."}
"""

HOST_KEY = Path("/etc/ssh/ssh_host_ed25519_key.pub")
KEY = "id_ed25519"


def make_key(folder: Path, comment: str) -> None:
    """Create the key in a directory that only root can change."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(folder / KEY)]
    subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def let_read(key: Path, group: int) -> None:
    """Let a group read a key. ssh accepts that, because the key does not belong to its own user."""
    os.chown(key, 0, group)
    key.chmod(0o640)


def is_prepared(key: Path, user: str, accounts: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether the accounts are as wanted, and the user's group can read the key."""
    try:
        entries = {name: pwd.getpwnam(name) for name in accounts}
        found, group = key.stat(), grp.getgrnam(user).gr_gid
    except (OSError, KeyError):
        return False
    as_wanted = all(
        {"home": entry.pw_dir, "shell": entry.pw_shell} == accounts[name] for name, entry in entries.items()
    )
    return as_wanted and (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (0, group, 0o640)


def addresses_of(name: str) -> list[str]:
    """Return the addresses of a name, without loopback, which Debian assigns to a host's own name."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(name.strip("[]"), None)}
    except OSError:
        return []
    return sorted(address for address in map(str, found) if not address.startswith(("127.", "::1")))


def text_of(file: Path) -> str:
    """Return the content of a file of root's, "" if there is none."""
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""


def run(step: Step) -> None:
    """Take the step."""
    home, user = Path(step.params["home"]), step.params["user"]
    folder = home / ".ssh"
    public = folder / f"{KEY}.pub"
    lacks = not public.exists()
    makes = step.params["make"] and not step.check_mode
    try:
        if lacks and makes:
            for directory in (home.parent, home, folder):
                directory.mkdir(mode=0o755, exist_ok=True)
            (folder / KEY).unlink(missing_ok=True)
            make_key(folder, step.params["comment"])
        if makes:
            let_read(folder / KEY, grp.getgrnam(user).gr_gid)
        user_key = text_of(public)
        host_key = HOST_KEY.read_text(encoding="utf-8").strip()
    except subprocess.CalledProcessError as error:
        step.fail_json(msg=f"no key could be made in {folder}: {error.stderr.strip()}")
    except (OSError, KeyError) as error:
        step.fail_json(msg=str(error))
    step.exit_json(
        changed=lacks and step.params["make"],
        user_key=user_key,
        host_key=host_key,
        prepared=not lacks and is_prepared(folder / KEY, user, step.params["accounts"]),
        authority=text_of(home / "user_ca.pub"),
        cluster=text_of(home / "principals"),
        certificate=text_of(folder / f"{KEY}-cert.pub"),
        deployed_by=deployed_by(home.parent),
        addresses=addresses_of(step.params["name"]),
    )
