"""Wheels that pip downloads to the controller, for hosts that may have another Python and processor."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from psfleet.carry.locks import Pinned, lock_text
from psfleet.carry.long_step import REPORT_SECONDS, told
from trainer.host.disk_space import readable
from trainer.host.environment import HostEnvironment

# glibc 2.28 is older than that of every supported host; a wheel may be made for any older one.
NEWEST_GLIBC_MINOR = 28
OLDEST_GLIBC_MINOR = {"x86_64": 5, "aarch64": 17}
LEGACY = {"x86_64": ["manylinux2014", "manylinux2010", "manylinux1"], "aarch64": ["manylinux2014"]}


def platforms(machine: str) -> list[str]:
    """Return the platform tags of wheels that run on hosts of this processor, the newest first."""
    minors = range(NEWEST_GLIBC_MINOR, OLDEST_GLIBC_MINOR[machine] - 1, -1)
    return [f"manylinux_2_{minor}_{machine}" for minor in minors] + [
        f"{legacy}_{machine}" for legacy in LEGACY[machine]
    ]


def download(
    packages: Sequence[Pinned], environment: HostEnvironment, partial: Path, say: Callable[[str], None]
) -> None:
    """Let pip download the wheels of these packages below `partial`. Raises ValueError with what pip said."""
    if importlib.util.find_spec("pip") is None:
        raise ValueError(
            f"{sys.executable} has no pip, which downloads the wheels. Install the controller's "
            "requirements again: make setup"
        )
    lock = partial / "lacking.txt"
    lock.write_text(lock_text(packages), encoding="utf-8")
    say(f"Download {len(packages)} wheels of {environment.name} to {partial.parent}, once ...")
    started = time.monotonic()
    at_hand = size_below(partial / "wheels")
    temporary, log = partial / "temporary", partial / "pip.log"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    with (
        log.open("w", encoding="utf-8") as stream,
        told(say, lambda: readable(size_below(temporary)), REPORT_SECONDS),
    ):
        done = subprocess.run(
            download_command(environment, lock, partial / "wheels"),
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(temporary)},
            check=False,
        )
    if done.returncode:
        said = log.read_text(encoding="utf-8", errors="replace")
        raise ValueError(
            f"The wheels of {lock}, for {environment.name}, could not be downloaded; nothing was installed. "
            f"pip said:\n{said[-2000:]}"
        )
    size = size_below(partial / "wheels") - at_hand
    say(f"  {readable(size)}, {time.monotonic() - started:.0f} s")


def download_command(environment: HostEnvironment, lock: Path, wheels: Path) -> list[str]:
    """Return pip's command line for the wheels of an environment."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", "--no-input", "--disable-pip-version-check"]
    # Its own cache keeps what an interrupted download has finished.
    command += [f"--cache-dir={wheels.parent / 'cache'}"]
    command += ["--implementation=cp", f"--python-version={environment.python}", f"--dest={wheels}"]
    command += [f"--abi={abi}" for abi in (f"cp{environment.python.replace('.', '')}", "abi3", "none")]
    command += [f"--platform={platform}" for platform in platforms(environment.machine)]
    return [*command, f"--requirement={lock}"]


def left_by_pip(partial: Path) -> int:
    """Return the bytes that an interrupted download has left of pip's own: used again, or removed first."""
    return size_below(partial / "cache") + size_below(partial / "temporary")


def size_below(folder: Path) -> int:
    """Return the bytes of the files below a folder that another program is filling."""
    return sum(size_or_zero(path) for path in folder.rglob("*") if not path.is_dir())


def size_or_zero(path: Path) -> int:
    """Return a file's size; 0 where it was moved meanwhile."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
