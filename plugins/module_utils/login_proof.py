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


def proof_of(decides: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object that changes if anything changes on which a proof of the login depends.

    It has the state of files, hashes of some, and the process of sshd. `decides` has sshd's systemd
    `service`, the `directory` of further files beside sshd_config, the `files` that were written for the
    login, and the files that say whom it `admits`. Raises OSError.
    """
    directory = Path(decides["directory"])
    read = [*decides["files"], directory.parent / "sshd_config", *sorted(directory.glob("*.conf"))]
    found = {str(path): path.stat() for path in map(Path, read) if path.exists()}
    admits = [path for path in map(Path, decides["admits"]) if path.exists()]
    return {
        "decides": {name: decides[name] for name in ("service", "directory", "files", "admits")},
        "process": systemctl("show", "--property=MainPID", "--value", decides["service"]).strip(),
        "files": {path: [each.st_ino, each.st_ctime_ns] for path, each in found.items()},
        "admitted": {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in admits},
    }


def last_proof(file: Path) -> dict[str, Any]:
    """Return the last proof, from the file in which `ssh_login` keeps it; {} if there is none."""
    with suppress(ValueError):
        proof = json.loads(bytes_of(file))
        return proof if isinstance(proof, dict) else {}
    return {}


def still_holds(file: Path) -> bool:
    """Return whether nothing has changed since the last proof; False without a proof. Raises OSError."""
    proof = last_proof(file)
    return "decides" in proof and proof_of(proof["decides"]) == proof
