"""Wheels that tests make, and the locks of them."""

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def make_wheel(folder: Path, name: str, files: Mapping[str, bytes]) -> str:
    """Write a wheel of this name, and return its SHA-256."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as stream:
        for path, content in files.items():
            stream.writestr(path, content)
    return hashlib.sha256((folder / name).read_bytes()).hexdigest()


def make_package(
    folder: Path,
    name: str,
    version: str = "1.0",
    requires: Sequence[str] = (),
    *,
    tag: str = "py3-none-any",
    files: Mapping[str, str] | None = None,
) -> str:
    """Write a wheel that can be installed, and return its SHA-256. Some `files` go beside its metadata."""
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", "Provides-Extra: and-cuda"]
    metadata += [f"Requires-Dist: {each}" for each in requires]
    information = f"{name}-{version}.dist-info"
    described = {
        f"{information}/METADATA": "".join(f"{line}\n" for line in metadata),
        f"{information}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        **{path.format(information=information): text for path, text in (files or {}).items()},
    }
    described[f"{information}/RECORD"] = "".join(f"{path},,\n" for path in described)
    content = {path: text.encode() for path, text in described.items()}
    return make_wheel(folder, f"{name}-{version}-{tag}.whl", content)


def lock_line(package: str, *hashes: str) -> str:
    """Return a package as it stands in a lock, such as "some-package==1.0"."""
    return " \\\n".join([package, *(f"    --hash=sha256:{digest}" for digest in hashes)]) + "\n"
