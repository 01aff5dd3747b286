"""Advice for the user's situation: remedies for hosts that do not answer, and commands with the inventory."""

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from ansible import constants

# A command with a playbook that names no inventory.
_COMMAND = re.compile(r"ansible-playbook (?!-i )")
_FOR_SUDO = (
    "add -K to the command, which asks for sudo's password, or set ansible_become_password "
    "(docs/operations.md#a-password-for-sudo); ansible_user must be a user who may use sudo"
)
_REACH = (
    "start the host and its sshd, or correct ansible_host and ansible_port in the inventory; a firewall on "
    "the way may keep this machine out"
)
# {words of ssh, sudo or Ansible: the remedy}
_REMEDIES = {
    "Host key verification failed": "~/.ssh/known_hosts has no key of that address, or another: compare "
    "`ssh-keyscan ADDRESS | ssh-keygen -lf -` with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the "
    "host, and where both are the same, `ssh-keyscan ADDRESS >> ~/.ssh/known_hosts`; with ansible_port, "
    "`ssh-keyscan -p PORT ADDRESS`",
    "Permission denied (": "correct ansible_user or the login key in the inventory, or authorise the key on "
    "the host; ssh-add unlocks a key with a passphrase",
    "Could not resolve hostname": "set ansible_host in the inventory to an address, or to a name that this "
    "machine resolves",
    "ssh: connect to host": _REACH,
    **dict.fromkeys(
        ("Missing sudo password", "Incorrect sudo password", "a password is required"), _FOR_SUDO
    ),
    **dict.fromkeys(
        ("is not in the sudoers file", "is not allowed to execute", "may not run sudo"),
        "let that user use sudo for every command there, or set ansible_user to one who may, or to root",
    ),
    "sudo: not found": "install sudo there, or set ansible_user to root",
    "found no Python there": "install python3 there, or set ansible_python_interpreter to its path there",
}
MEND_CONNECTION = (
    "correct ansible_host, ansible_port, ansible_user or the login key in the inventory, or install python3 "
    "and sudo on the host (ansible_become_password, if sudo asks for a password)"
)


def remedies(problems: Iterable[str], otherwise: str = MEND_CONNECTION) -> list[str]:
    """Return the remedies for hosts that did not answer, each once, in the order of `problems`.

    `problems` are the reasons, as ssh, sudo or Ansible give them. `otherwise` is the remedy for a reason that
    is not listed in _REMEDIES; with "", such a reason gets no remedy.
    """
    found = (
        next((remedy for sign, remedy in _REMEDIES.items() if sign in problem), otherwise)
        for problem in problems
    )
    return list(filter(None, dict.fromkeys(found)))


def with_inventory(text: str, sources: Sequence[str]) -> str:
    """Return the text with "-i" and the inventory inserted after each `ansible-playbook`.

    `sources` is Ansible's variable `ansible_inventory_sources`. A command that names an inventory by "-i"
    stays unchanged, and so does the whole text if the inventory is Ansible's default.
    Example: "run ansible-playbook deploy.yml" -> "run ansible-playbook -i inventory/lab deploy.yml"
    """
    if list(sources) == list(constants.DEFAULT_HOST_LIST):
        return text
    here = f"{Path.cwd()}/"
    inventory = " ".join(f"-i {shlex.quote(source.removeprefix(here))}" for source in sources)
    return _COMMAND.sub(lambda _: f"ansible-playbook {inventory} ", text)
