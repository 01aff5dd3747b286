"""Names the person who runs a playbook, for hosts and for other people."""

import getpass
import os
import re
import socket
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from plugins.module_utils.people import BEGUN


def person() -> str:
    """Return the user and the machine as one text, such as "ana@desk"; after sudo, "ana as cluster@desk".

    Characters other than ASCII letters, digits, "_", ".", "-" and blanks become "_".
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        user = str(os.getuid())
    login = os.environ.get("SUDO_USER") or user
    name = user if login == user else f"{login} as {user}"
    return f"{_plain(name)}@{_plain(socket.gethostname())}"


def beginning(settings: Mapping[str, Any], by: str, now: datetime) -> str:
    """Return the text by which hosts know who began a run and when: "ana@desk, 2026-01-31 12:00 UTC".

    `by` is that person, as `person` returns it; `now` is the time in UTC. If the same person resumes a run,
    the text `begun` in its `settings` (settings.json) is returned unchanged: then its file on the hosts does
    not change, and the traffic of its tasks is still counted.
    """
    before = settings.get("begun")
    if isinstance(before, str) and BEGUN.fullmatch(before) and before.startswith(f"{by}, "):
        return before
    return f"{by}, {now:%Y-%m-%d %H:%M} UTC"


def _plain(name: str) -> str:
    return re.sub(r"[^\w. -]", "_", name, flags=re.ASCII)[:80] or "_"
