"""What a host tells of its keys for SSH: one whose keys cannot be signed is refused, and by itself."""

from collections.abc import Mapping
from typing import Any

from psfleet.carry.certificates import source_addresses, unsigned

HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"


def identity_problem(host: str, arguments: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """Say what keeps a host's answer to `ssh_identity` from being signed; empty where nothing does."""
    user_key = f"{arguments['home']}/.ssh/id_ed25519.pub"
    try:
        anew = f"ssh-keygen -y -f {HOST_KEY} > {HOST_KEY}.pub"
        require_signable(str(answer["host_key"]), f"{HOST_KEY}.pub of {host}", anew)
        if text := str(answer["user_key"]):  # there is none before it is made
            require_signable(text, f"{user_key} of {host}", f"rm {user_key}")
        source_addresses(host, arguments["name"], answer["addresses"])
    except ValueError as error:
        return str(error)
    return ""


def require_signable(public_key: str, file: str, remedy: str) -> None:
    """Raise ValueError, which names the file of the host, for what is no public key."""
    try:
        unsigned(public_key)
    except ValueError as error:
        raise ValueError(
            f"the public key in {file} {error}. There, as root, then deploy again: {remedy}"
        ) from error
