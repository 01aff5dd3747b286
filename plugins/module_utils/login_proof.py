"""The proof that an account can log in by SSH.

It holds until something that decides about the login changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from .host.task_traces import bytes_of
from .host.task_units import systemctl


def proof_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object that changes if anything changes on which a proof of the login depends.

    Args:
        arguments: of the module `ssh_login`: sshd's systemd `service`, the `directory` of further files
            beside sshd_config, the `files` that were written for the login, and the files that say whom it
            `admits`.

    Returns:
        `decides` (these four arguments), `process` (sshd's pid), `files` ({path: [inode, time of change]} of
        all files that sshd reads) and `admitted` ({path: SHA-256} of the files in `admits`).

    Raises OSError.

    """
    directory = Path(arguments["directory"])
    read = [*arguments["files"], directory.parent / "sshd_config", *sorted(directory.glob("*.conf"))]
    statuses = {str(path): path.stat() for path in map(Path, read) if path.exists()}
    admits = [path for path in map(Path, arguments["admits"]) if path.exists()]
    return {
        "decides": {name: arguments[name] for name in ("service", "directory", "files", "admits")},
        "process": systemctl("show", "--property=MainPID", "--value", arguments["service"]).strip(),
        "files": {path: [status.st_ino, status.st_ctime_ns] for path, status in statuses.items()},
        "admitted": {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in admits},
    }


def last_proof(file: Path) -> dict[str, Any]:
    """Return the result of `proof_of` that `ssh_login` wrote to `file`; {} if it is missing or damaged."""
    with suppress(ValueError):
        proof = json.loads(bytes_of(file))
        return proof if isinstance(proof, dict) else {}
    return {}


def proof_holds(file: Path) -> bool:
    """Return whether the last proof, in `file`, still holds: `proof_of` returns the same today.

    Return False if there is no proof. Raises OSError.
    """
    proof = last_proof(file)
    return "decides" in proof and proof_of(proof["decides"]) == proof
