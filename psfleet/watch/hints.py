"""Advice for the user's situation: remedies for hosts that do not answer, and commands with the inventory."""

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from ansible import constants

# A command with a playbook and no inventory yet.
_COMMAND = re.compile(r"ansible-playbook (?!-i )")
# ssh's message -> the remedy; then the remedy for other problems.
_REMEDIES = {
    "Host key verification failed": "~/.ssh/known_hosts has no key of that address, or another: compare "
    "`ssh-keyscan ADDRESS | ssh-keygen -lf -` with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the "
    "host, and where both are the same, `ssh-keyscan ADDRESS >> ~/.ssh/known_hosts`",
    "Permission denied (": "correct ansible_user or the login key in the inventory, or authorise the key on "
    "the host; ssh-add unlocks a key with a passphrase",
}
MEND_CONNECTION = (
    "correct ansible_host, ansible_port, ansible_user or the login key in the inventory, or install python3 "
    "and sudo on the host (ansible_become_password, if sudo asks for a password)"
)


def remedies(problems: Iterable[str], otherwise: str = MEND_CONNECTION) -> list[str]:
    """Return the remedies for hosts that did not answer, each once; `problems` are the reasons.

    `otherwise` is the remedy for a reason that is not listed; "" leaves it out.
    """
    found = (
        next((remedy for sign, remedy in _REMEDIES.items() if sign in problem), otherwise)
        for problem in problems
    )
    return list(filter(None, dict.fromkeys(found)))


def with_inventory(text: str, sources: Sequence[str]) -> str:
    """Return the text with the inventory (`ansible_inventory_sources`) after each `ansible-playbook`.

    A command that names an inventory stays unchanged.
    """
    if list(sources) == list(constants.DEFAULT_HOST_LIST):
        return text
    here = f"{Path.cwd()}/"
    inventory = " ".join(f"-i {shlex.quote(source.removeprefix(here))}" for source in sources)
    return _COMMAND.sub(lambda _: f"ansible-playbook {inventory} ", text)
