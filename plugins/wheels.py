"""Wheels on the controller: downloaded by pip or taken from those at hand, verified, packed for hosts."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from plugins.locks import Pinned, lock_text, normalized
from plugins.module_utils.content_directory import file_sha256

# glibc 2.28 is older than that of every supported host; a wheel may be made for any older one.
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(28, 16, -1)] + ["manylinux2014_x86_64"]
REPORT_SECONDS = 5
MEGABYTE = 1_000_000
REFUSED = re.compile(
    r"^\s+(?P<name>[A-Za-z0-9._-]+==\S+).*?"
    r"Expected sha256 (?P<expected>[0-9a-f]{64}).*?Got\s+(?P<got>[0-9a-f]{64})",
    re.DOTALL | re.MULTILINE,
)


def obtain(
    packages: Mapping[str, Pinned], python_version: str, partial: Path, pool: Path, say: Callable[[str], None]
) -> Path:
    """Return a folder below `partial` with a verified wheel of every package.

    They come from what an interrupted download has left there, from `pool`, and else from the package index.
    Raises ValueError where a wheel cannot be had or is not the locked one.
    """
    wheels = partial / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for wheel in pool.glob("*.whl"):
        if is_locked(wheel, packages):
            link(wheel, wheels / wheel.name)
    present = {package_of(wheel) for wheel in wheels.glob("*.whl") if is_locked(wheel, packages)}
    lacking = [package for name, package in packages.items() if name not in present]
    if lacking:
        download(lacking, python_version, partial, say)
    verify(wheels, packages)
    pool.mkdir(exist_ok=True)
    for wheel in wheels.glob("*.whl"):
        link(wheel, pool / wheel.name)
    return wheels


def package_of(wheel: Path) -> str:
    """Return the normalized name of a wheel's package."""
    return normalized(wheel.name.split("-")[0])


def is_locked(wheel: Path, packages: Mapping[str, Pinned]) -> bool:
    """Tell whether a wheel is one that a lock allows. It is read only where name and version are right."""
    package = packages.get(package_of(wheel))
    return (
        package is not None
        and wheel.name.split("-")[1] == package.version
        and file_sha256(wheel) in package.hashes
    )


def link(wheel: Path, place: Path) -> None:
    """Let `place` be the same file as `wheel`, or a copy of it on another file system."""
    fresh = place.with_suffix(f".{os.getpid()}")
    try:
        os.link(wheel, fresh)
    except OSError:
        shutil.copyfile(wheel, fresh)
    fresh.replace(place)
    fresh.unlink(missing_ok=True)  # a rename of a file to its own second name does nothing


def download(
    packages: Sequence[Pinned], python_version: str, partial: Path, say: Callable[[str], None]
) -> None:
    """Let pip download the wheels of these packages below `partial`. Raises ValueError with what pip said."""
    if importlib.util.find_spec("pip") is None:
        raise ValueError(
            f"{sys.executable} has no pip, which downloads the wheels. Install the controller's "
            "requirements again: make setup"
        )
    lock = partial / "lacking.txt"
    lock.write_text(lock_text(packages), encoding="utf-8")
    say(f"Download {len(packages)} wheels to {partial.parent}, once ...")
    started = reported = time.monotonic()
    at_hand = megabytes(partial / "wheels")
    temporary, log = partial / "temporary", partial / "pip.log"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            download_command(python_version, lock, partial / "wheels"),
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        while process.poll() is None:
            time.sleep(0.2)
            if time.monotonic() - reported >= REPORT_SECONDS:
                reported = time.monotonic()
                say(f"  {megabytes(temporary)} MB, {reported - started:.0f} s")
    if process.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        tail = "\n".join(line for line in lines if not line.startswith(("Collecting", "Saved", "  ")))
        raise ValueError(
            f"The wheels of {lock} could not be downloaded; nothing was installed. "
            f"{explain(log)}pip said:\n{tail[-2000:]}"
        )
    say(f"  {megabytes(partial / 'wheels') - at_hand} MB, {time.monotonic() - started:.0f} s")


def download_command(python_version: str, lock: Path, wheels: Path) -> list[str]:
    """Return pip's command line for the wheels of hosts that may have another Python than the controller."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", "--no-input", "--disable-pip-version-check"]
    # Its own cache keeps what an interrupted download has finished.
    command += [f"--cache-dir={wheels.parent / 'cache'}"]
    command += ["--implementation=cp", f"--python-version={python_version}", f"--dest={wheels}"]
    command += [f"--abi={abi}" for abi in (f"cp{python_version.replace('.', '')}", "abi3", "none")]
    command += [f"--platform={platform}" for platform in PLATFORMS]
    return [*command, f"--requirement={lock}"]


def megabytes(folder: Path) -> int:
    """Return the size of the files below a folder that another program is filling."""
    return sum(size_or_zero(path) for path in folder.rglob("*")) // MEGABYTE


def size_or_zero(path: Path) -> int:
    """Return a file's size; 0 where it was moved meanwhile."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def explain(log: Path) -> str:
    """Return the file and both hashes where pip refused a wheel, else nothing."""
    text = log.read_text(encoding="utf-8", errors="replace")
    found = REFUSED.search(text)
    if found is None:
        return ""
    return f"{found['name']}: sha256 is {found['got']}, the lock expects {found['expected']}.\n"


def verify(wheels: Path, packages: Mapping[str, Pinned]) -> None:
    """Compare every wheel with its lock.

    Raises ValueError with the file and both hashes, or with the packages whose wheels are missing.
    """
    missing = dict(packages)
    for wheel in sorted(wheels.glob("*.whl")):
        package = packages.get(package_of(wheel))
        allowed = package.hashes if package else frozenset()
        found = file_sha256(wheel)
        if found not in allowed:
            expected = " or ".join(sorted(allowed)) or "no such package"
            raise ValueError(
                f"{wheel} is not what the lock asks for; nothing was installed. sha256 is {found}, "
                f"the lock expects {expected}. Remove the file to download it again."
            )
        missing.pop(package_of(wheel), None)
    if missing:
        raise ValueError(f"no wheel was downloaded for {', '.join(sorted(missing))}")


def require_own_modules(wheels: Path) -> None:
    """Raise ValueError for a wheel that would put another TensorFlow over that of the environment."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as content:
            if "tensorflow/__init__.py" in content.namelist():
                raise ValueError(
                    f"trainer_program_requirements asks for {package_of(wheel)}, which is TensorFlow under "
                    "another name: it would overwrite the environment's own. Ask for tensorflow, or for none"
                )


def pack(wheels: Path, requirements: Path, archive: Path) -> None:
    """Write the wheels, the lock and the program `uv` into one tar archive. Wheels are compressed already."""
    installer = next(wheels.glob("uv-*.whl"))
    with tarfile.open(archive, "w") as stream:
        for wheel in sorted(wheels.glob("*.whl")):
            if wheel != installer:
                stream.add(wheel, arcname=f"wheels/{wheel.name}", recursive=False, filter=plain)
        stream.add(requirements, arcname="requirements.txt", recursive=False, filter=plain)
        with zipfile.ZipFile(installer) as content:
            name = next(name for name in content.namelist() if name.endswith(".data/scripts/uv"))
            program = content.read(name)
        member = plain(tarfile.TarInfo("uv"))
        member.size, member.mode = len(program), 0o755
        stream.addfile(member, io.BytesIO(program))
    with archive.open("rb") as written:
        os.fsync(written.fileno())


def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member without the times and owners of this machine."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = "root"
    member.mode = 0o644
    return member


def unpacked_bytes(archive: Path) -> int:
    """Return the size of the files in the wheels of an archive, without the byte code made of them."""
    total = 0
    with tarfile.open(archive) as stream:
        for member in stream:
            content = stream.extractfile(member) if member.name.endswith(".whl") else None
            if content is not None:
                with zipfile.ZipFile(content) as wheel:
                    total += sum(file.file_size for file in wheel.infolist())
    return total
