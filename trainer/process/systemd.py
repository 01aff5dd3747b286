"""Notifications to systemd: READY once the server listens, WATCHDOG on progress, STATUS for people."""

import os
import socket
from contextlib import suppress


def notify(*lines: str) -> None:
    """Send lines such as `READY=1` to the service manager; do nothing if there is none or on errors."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
    with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as manager:
        manager.sendto("\n".join(lines).encode(), address)
