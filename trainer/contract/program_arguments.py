"""What the arguments of a program may leave to be filled in for each task: `{data_dir}` and its like."""

import re
from collections.abc import Mapping
from difflib import get_close_matches

PLACEHOLDERS = ("data_dir", "run_dir", "task_index")
# With a backslash before it, it stays. Other braces are the program's own: JSON, or {epoch} in a file's name.
_PLACEHOLDER = re.compile(r"(\\?)\{([a-z]+[_-]?[a-z]*)\}")
_NEARLY = 0.85


def filled(argument: str, values: Mapping[str, str]) -> str:
    """Return an argument with the values of its placeholders, of which `values` has all."""

    def value(found: re.Match[str]) -> str:
        escape, name = found.groups()
        if not _meant(name):
            return found[0]
        return f"{{{name}}}" if escape else values.get(name, found[0])

    return _PLACEHOLDER.sub(value, argument)


def placeholders(argument: str) -> set[str]:
    """Return the names of an argument's placeholders."""
    return {name for escape, name in _PLACEHOLDER.findall(argument) if name in PLACEHOLDERS and not escape}


def misspelled(argument: str) -> dict[str, str]:
    """Return what looks like a placeholder's name and is none, with that which it looks like."""
    names = [name for escape, name in _PLACEHOLDER.findall(argument) if not escape]
    return {name: meant for name in names if (meant := _meant(name)) not in {"", name}}


def _meant(name: str) -> str:
    return next(iter(get_close_matches(name, PLACEHOLDERS, 1, _NEARLY)), "")
