"""Placeholders such as `{data_dir}` in the arguments of a program, which are replaced for each task."""

import re
from collections.abc import Mapping
from difflib import get_close_matches

# What each placeholder gives: see docs/programs.md.
PLACEHOLDERS = (
    *("data_dir", "run_dir", "job_name", "task_index", "task_host", "task_port"),
    *("ps_hosts", "worker_hosts", "chief_hosts", "cluster", "cluster_file"),
)
# Names that people try -> the placeholder that they mean, which the name does not resemble.
_OTHER_NAMES = {
    "job": "job_name",
    "ps": "ps_hosts",
    "workers": "worker_hosts",
    "chief": "chief_hosts",
    "cluster_spec": "cluster",
    "clusterspec": "cluster",
}
# A backslash before a placeholder keeps the placeholder as text. Other braces belong to the program, such as
# JSON, or {epoch} in a file's name.
_PLACEHOLDER = re.compile(r"(\\?)\{([A-Za-z]+(?:[_-][A-Za-z]+)*)\}")
_NEARLY = 0.8


def fill_placeholders(argument: str, values: Mapping[str, str]) -> str:
    """Return `argument` with its placeholders replaced; `values` maps a placeholder's name to its value.

    Example: fill_placeholders("--job={job_name}", {"job_name": "ps"}) -> "--job=ps"
    """

    def value(match: re.Match[str]) -> str:
        escape, name = match.groups()
        if not _meant(name):
            return match[0]
        return f"{{{name}}}" if escape else values.get(name, match[0])

    return _PLACEHOLDER.sub(value, argument)


def placeholders(argument: str) -> set[str]:
    """Return the names in `argument` that are in PLACEHOLDERS, without escaped placeholders."""
    return {name for escape, name in _PLACEHOLDER.findall(argument) if name in PLACEHOLDERS and not escape}


def misspelled(argument: str) -> dict[str, str]:
    """Return {misspelled name in `argument`: the name of the placeholder that it resembles}.

    Example: misspelled("--job={jobname}") -> {"jobname": "job_name"}
    """
    names = [name for escape, name in _PLACEHOLDER.findall(argument) if not escape]
    return {name: meant for name in names if (meant := _meant(name)) not in {"", name}}


def _meant(name: str) -> str:
    lower = name.lower()
    return _OTHER_NAMES.get(lower) or next(iter(get_close_matches(lower, PLACEHOLDERS, 1, _NEARLY)), "")
