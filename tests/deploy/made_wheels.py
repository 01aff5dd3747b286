"""Wheels that tests make, and the locks of them."""

import hashlib
import zipfile
from pathlib import Path


def make_wheel(folder: Path, name: str, files: dict[str, bytes]) -> str:
    """Write a wheel of this name, and return its SHA-256."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as stream:
        for path, content in files.items():
            stream.writestr(path, content)
    return hashlib.sha256((folder / name).read_bytes()).hexdigest()


def lock_line(package: str, *hashes: str) -> str:
    """Return a package as it stands in a lock, such as "some-package==1.0"."""
    return " \\\n".join([package, *(f"    --hash=sha256:{digest}" for digest in hashes)]) + "\n"
