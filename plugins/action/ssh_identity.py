"""Have a host tell its keys for SSH; one whose keys cannot be signed fails here, and by itself."""

from typing import Any

from psfleet.carry.certificates import source_addresses, unsigned

from ..plugin_utils.actions import HostAction

HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"


class ActionModule(HostAction):
    """Arguments and answer are those of the module."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = self._run_module(arguments)
        if answer.get("failed"):
            return answer
        host = self.variables["inventory_hostname"]
        user_key = f"{arguments['home']}/.ssh/id_ed25519.pub"
        try:
            anew = f"ssh-keygen -y -f {HOST_KEY} > {HOST_KEY}.pub"
            require_signable(str(answer["host_key"]), f"{HOST_KEY}.pub of {host}", anew)
            if text := str(answer["user_key"]):  # a check makes none
                require_signable(text, f"{user_key} of {host}", f"rm {user_key}")
            source_addresses(host, arguments["name"], answer["addresses"])
        except ValueError as error:
            return self._failure(str(error))
        return answer


def require_signable(public_key: str, file: str, remedy: str) -> None:
    """Raise ValueError, which names the file of the host, for what is no public key."""
    try:
        unsigned(public_key)
    except ValueError as error:
        raise ValueError(
            f"the public key in {file} {error}. There, as root, then deploy again: {remedy}"
        ) from error
