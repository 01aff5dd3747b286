"""Who types the playbooks, as the hosts and other people are told."""

import getpass
import os
import re
import socket
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from trainer.host.people import BEGUN


def person() -> str:
    """Return the user and the machine, and who came by sudo: `ana@desk`, `ana as cluster@desk`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        user = str(os.getuid())
    came = os.environ.get("SUDO_USER") or user
    named = user if came == user else f"{came} as {user}"
    return f"{_plain(named)}@{_plain(socket.gethostname())}"


def beginning(settings: Mapping[str, Any], by: str, now: datetime) -> str:
    """Return what hosts are told of who began a run: as its settings have it, where the same person goes on.

    A file that stays as it is keeps what was counted of a task's traffic since then.
    """
    kept = settings.get("begun")
    if isinstance(kept, str) and BEGUN.fullmatch(kept) and kept.startswith(f"{by}, "):
        return kept
    return f"{by}, {now:%Y-%m-%d %H:%M} UTC"


def _plain(name: str) -> str:
    return re.sub(r"[^\w. -]", "_", name, flags=re.ASCII)[:80] or "_"
