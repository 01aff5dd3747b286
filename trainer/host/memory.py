"""What to do about a task for which its host has too little memory."""

from __future__ import annotations

from pathlib import Path

from .host_facts import parse_memory, read_memory_limit, text_of

_GIB = 1 << 30


def memory_remedy(root: Path = Path("/")) -> str:
    """Return how much memory the host under `root` has for its tasks, and what helps, in a sentence."""
    known = (parse_memory(text_of(root / "proc/meminfo")), read_memory_limit(root))
    least = min((size for size in known if size is not None), default=None)
    has = "its host has too little memory" if least is None else f"its host has {least / _GIB:.1f} GiB"
    return f"{has}: a smaller batch or model, fewer tasks on this host, or more memory helps"
