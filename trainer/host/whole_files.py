"""Reading whole files: their text, and the hash of their content."""

from __future__ import annotations

import hashlib
from pathlib import Path

BLOCK_BYTES = 1 << 20


def text_of(file: Path) -> str:
    """Return the text of a file (UTF-8, invalid bytes replaced); "" if it is missing or cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file of any size, in hex digits. Raises OSError."""
    digest = hashlib.sha256()
    add_content(digest, path)
    return digest.hexdigest()


def add_content(digest: hashlib._Hash, path: Path) -> None:
    """Add the bytes of a file of any size to a digest. Raises OSError."""
    with path.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
