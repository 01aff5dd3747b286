"""Placeholders such as `{data_dir}` in the arguments of a program, which are replaced for each task."""

import re
from collections.abc import Mapping
from difflib import get_close_matches

# What each placeholder gives: see docs/programs.md.
PLACEHOLDERS = (
    *("data_dir", "run_dir", "job_name", "task_index", "task_host", "task_port"),
    *("ps_hosts", "worker_hosts", "chief_hosts", "cluster", "cluster_file"),
)
# Names that people try, which do not resemble the placeholder that they mean.
_OTHER_NAMES = {
    "job": "job_name",
    "ps": "ps_hosts",
    "workers": "worker_hosts",
    "chief": "chief_hosts",
    "cluster_spec": "cluster",
    "clusterspec": "cluster",
}
# A backslash before a placeholder keeps it. Other braces belong to the program: JSON, or {epoch} in a name.
_PLACEHOLDER = re.compile(r"(\\?)\{([A-Za-z]+(?:[_-][A-Za-z]+)*)\}")
_NEARLY = 0.8


def filled(argument: str, values: Mapping[str, str]) -> str:
    """Return an argument with its placeholders replaced; `values` has one for each placeholder's name."""

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
    """Return misspelled name -> the placeholder that it resembles."""
    names = [name for escape, name in _PLACEHOLDER.findall(argument) if not escape]
    return {name: meant for name in names if (meant := _meant(name)) not in {"", name}}


def _meant(name: str) -> str:
    lower = name.lower()
    return _OTHER_NAMES.get(lower) or next(iter(get_close_matches(lower, PLACEHOLDERS, 1, _NEARLY)), "")
