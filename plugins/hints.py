"""Advice that means the hosts at hand: a playbook typed without `-i` may mean another cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible import constants


def with_inventory(text: str, variables: Mapping[str, Any]) -> str:
    """Return the text with the inventory of this run behind each `ansible-playbook`."""
    sources = [str(source) for source in variables.get("ansible_inventory_sources") or ()]
    if sources == [str(source) for source in constants.DEFAULT_HOST_LIST]:
        return text
    return text.replace(
        "ansible-playbook ", f"ansible-playbook {' '.join(f'-i {path}' for path in sources)} "
    )
