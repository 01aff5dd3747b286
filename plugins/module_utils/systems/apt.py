"""The packages of Debian, and of systems that are made from Debian."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence


def lacking(packages: Sequence[str]) -> tuple[str, ...]:
    """Return the packages that no source of this host has, in the given order.

    Raises OSError if the host has no apt.
    """
    environment = {**os.environ, "LC_ALL": "C"}
    command = ["apt-cache", "policy", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return without_candidate(done.stdout, packages)


def without_candidate(policy: str, packages: Sequence[str]) -> tuple[str, ...]:
    """Return the packages that no source has, in the given order.

    `policy` is the output of `apt-cache policy PACKAGES`.
    """
    found, name = set(), ""
    for line in policy.splitlines():
        if line and not line.startswith(" "):
            name = line.rstrip(":")
        elif line.strip().startswith("Candidate:") and "(none)" not in line:
            found.add(name)
    return tuple(package for package in packages if package not in found)
