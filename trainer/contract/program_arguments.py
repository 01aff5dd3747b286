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
    r"""Return `argument` with its placeholders replaced; `values` is {placeholder's name: value}.

    A placeholder without a value stays, as do other braces. A backslash keeps a placeholder as text, and is
    removed.
    Example: fill_placeholders(r"{job_name} \{run_dir} {x}", {"job_name": "ps"}) -> "ps {run_dir} {x}"
    """

    def value(match: re.Match[str]) -> str:
        escape, name = match.groups()
        if not _meant(name):
            return match[0]
        return f"{{{name}}}" if escape else values.get(name, match[0])

    return _PLACEHOLDER.sub(value, argument)


def placeholders(argument: str) -> set[str]:
    r"""Return the names of the placeholders (PLACEHOLDERS) in `argument`, except after a backslash.

    Example: placeholders(r"{job_name} \{ps_hosts} {epoch}") -> {"job_name"}
    """
    return {name for escape, name in _PLACEHOLDER.findall(argument) if name in PLACEHOLDERS and not escape}


def misspelled(argument: str) -> dict[str, str]:
    """Return {misspelled name in `argument`: the placeholder's name that it resembles}; {} if there is none.

    Names that resemble no placeholder, or have a backslash before, are left out.
    Example: misspelled("--job={jobname} {epoch}") -> {"jobname": "job_name"}
    """
    names = [name for escape, name in _PLACEHOLDER.findall(argument) if not escape]
    return {name: meant for name in names if (meant := _meant(name)) not in {"", name}}


def _meant(name: str) -> str:
    lower = name.lower()
    return _OTHER_NAMES.get(lower) or next(iter(get_close_matches(lower, PLACEHOLDERS, 1, _NEARLY)), "")
