"""The host check `ssh`: whether the host's sshd answers where other hosts look for it."""

from __future__ import annotations

import socket

from ..host.check import Finding, failed, ok

SECONDS_TO_ANSWER = 10.0
_GREETING = b"SSH-"


def ssh_finding(host: str, address: str, port: int) -> Finding:
    """Return the finding of the check `ssh`: ok if an sshd answers at `address` and `port`, else failed.

    `address` is the host's own address in the plan. The check runs on `host` itself, and does not log in.
    """
    place = f"{address} port {port}"
    try:
        with socket.create_connection((address.strip("[]"), port), SECONDS_TO_ANSWER) as connection:
            connection.settimeout(SECONDS_TO_ANSWER)
            greeting = connection.recv(len(_GREETING), socket.MSG_WAITALL)
    except socket.timeout:  # noqa: UP041 - Python 3.8 has no other
        return failed(f"no answer at {place} within {SECONDS_TO_ANSWER:g} s", sshd_remedy(host, port))
    except (OSError, UnicodeError) as error:
        found = f"{place}: {getattr(error, 'strerror', None) or error}"
        return failed(found, sshd_remedy(host, port))
    if greeting != _GREETING:
        return failed(f"what answers at {place} is no sshd", sshd_remedy(host, port))
    return ok(f"sshd answers at {place}")


def sshd_remedy(host: str, port: int) -> str:
    """Return what to do, in words, if no sshd answers at a host's address in the plan and `port`."""
    return (
        f"set ssh_mesh_port, in host_vars/{host}.yml or beside ansible_host of {host}, to the port at which "
        f"sshd listens there ({port} is expected: ssh_mesh_port, or else ansible_port, or else 22), and "
        "trainer_address to an address of the host itself"
    )
