"""Finds the releases, programs and environments that a host already has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..deployment import is_complete
from ..private_files import group_number
from ..releases import Release
from ..unneeded_content import ContentDirectories, settled_names

TRAINER = "trainer"


def look_at_content(values: Mapping[str, Any], _: Callable[[str], None]) -> dict[str, Any]:
    """Return what a host has already, for the part `content` of `host_facts`.

    `values` are the arguments of this part. The answer has:

    - `releases`, `programs`: the requested names that exist, with files that have the hash in the name; a
      program's files must also be private to the group.
    - `environments`: the hashes of all complete environments, sorted. `settled`: the result of
      `settled_names`.
    """
    directory = Path(values["install_directory"])
    directories = ContentDirectories(directory, Path(values["run_directory"]))
    # Before the first deployment there is no such group, as in check mode.
    group = group_number(values["group"], check_mode=True)
    releases = (Release(directory / "releases", name, TRAINER) for name in values["releases"])
    programs = (Release(directory / "programs", name, group=group) for name in values["programs"])
    environments = (directory / "environments").glob("[0-9a-f]*")
    return {
        "releases": [release.name for release in releases if release.is_present()],
        "programs": [
            program.name for program in programs if program.is_present() and not program.public_paths()
        ],
        "environments": sorted(path.name for path in environments if is_complete(path)),
        "settled": settled_names(directories.stored(), values["keep"]),
    }
