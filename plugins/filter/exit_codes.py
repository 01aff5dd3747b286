"""The trainer's exit codes for templates, from their one home."""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from trainer.contract import exit_codes as codes


def exit_codes(name: str) -> list[int]:
    """Return the codes that trainer/contract/exit_codes.py lists under `name`, such as NO_RESTART.

    Raises AnsibleFilterError where it lists none.
    """
    value = getattr(codes, name, None)
    if not isinstance(value, tuple):
        raise AnsibleFilterError(f"trainer/contract/exit_codes.py has no list {name}")
    return list(value)


class FilterModule:
    """The filter `exit_codes`."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"exit_codes": exit_codes}
