"""The memory that a host has."""

from __future__ import annotations

import re
from pathlib import Path

from .whole_files import text_of

# cgroup v1 writes "no limit" as the largest number of pages, which is above this number of bytes.
NO_LIMIT_BYTES = 2**60


def memory_bytes(root: Path = Path("/")) -> int | None:
    """Return how many bytes of memory the host has for its tasks.

    This is the smaller of MemTotal and the limit of the host's root control group; the known one if only one
    is known, None if neither is. `root` is the directory in which proc/ and sys/ are.
    """
    known = (parse_memory(text_of(root / "proc/meminfo")), read_memory_limit(root))
    return min((size for size in known if size is not None), default=None)


def parse_memory(meminfo: str) -> int | None:
    """Return MemTotal in the text of /proc/meminfo, in bytes; None if it is missing."""
    match = re.search(r"^MemTotal[ \t]*:[ \t]*([0-9]+) kB", meminfo, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def read_memory_limit(root: Path) -> int | None:
    """Return the memory limit, in bytes, of the host's root control group (v2, else v1); None without one.

    Only a container has a limit there. `root` is the directory in which sys/ is.
    """
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        text = text_of(root / "sys/fs/cgroup" / name).strip()
        if text.isdigit() and int(text) < NO_LIMIT_BYTES:
            return int(text)
    return None
