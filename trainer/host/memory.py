"""The memory that a host has, and what to do about a task for which that is too little."""

from __future__ import annotations

from pathlib import Path

from .host_facts import parse_memory, read_memory_limit, text_of

_GIB = 1 << 30


def memory_bytes(root: Path = Path("/")) -> int | None:
    """Return how much memory the host under `root` has for its tasks; None if that is not known."""
    known = (parse_memory(text_of(root / "proc/meminfo")), read_memory_limit(root))
    return min((size for size in known if size is not None), default=None)


def memory_remedy(root: Path = Path("/")) -> str:
    """Return how much memory the host under `root` has for its tasks, and what helps, in a sentence."""
    least = memory_bytes(root)
    has = "its host has too little memory" if least is None else f"its host has {least / _GIB:.1f} GiB"
    return f"{has}: a smaller batch or model, fewer tasks on this host, or more memory helps"
