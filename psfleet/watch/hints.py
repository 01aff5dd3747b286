"""Advice that means the hosts at hand: a playbook typed without `-i` may mean another cluster."""

from collections.abc import Sequence
from pathlib import Path

from ansible import constants


def with_inventory(text: str, sources: Sequence[str]) -> str:
    """Return the text with the inventory (`ansible_inventory_sources`) behind each `ansible-playbook`."""
    if list(sources) == list(constants.DEFAULT_HOST_LIST):
        return text
    here = f"{Path.cwd()}/"
    inventory = " ".join(f"-i {source.removeprefix(here)}" for source in sources)
    return text.replace("ansible-playbook ", f"ansible-playbook {inventory} ")
