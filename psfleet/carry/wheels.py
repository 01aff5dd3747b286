"""Collects the wheels of an environment on the controller: downloads missing wheels and verifies all."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from plugins.module_utils.environments.environment import HostEnvironment
from psfleet.carry.locks import PinnedPackage, lock_text
from psfleet.carry.long_step import REPORT_SECONDS, report_progress
from psfleet.carry.pip_settings import pip_environment, without_passwords
from trainer.host.whole_files import file_sha256
from trainer.host.wording import readable

# Every supported host has a newer glibc than 2.28; a wheel may be built for any older one.
NEWEST_GLIBC_MINOR = 28
OLDEST_GLIBC_MINOR = {"x86_64": 5, "aarch64": 17}
# For aarch64, `tensorflow` was an empty wheel that requires this one, until 2.17.
AWS = "tensorflow-cpu-aws"
LEGACY = {"x86_64": ["manylinux2014", "manylinux2010", "manylinux1"], "aarch64": ["manylinux2014"]}


def collect_wheels(
    packages: Mapping[str, PinnedPackage],
    environment: HostEnvironment,
    partial: Path,
    say: Callable[[str], None],
    own_wheels: Mapping[str, Path] = MappingProxyType({}),
) -> Path:
    """Return a folder below `partial` with a wheel of every package, each with a hash that its lock permits.

    The wheels are `own_wheels`, {normalized name: path}, or come from an interrupted download there, from the
    pool of wheels beside `partial`, or from the package index. Raises ValueError if a wheel is unavailable or
    does not match its lock.
    """
    wheels, pool = partial / "wheels", pool_beside(partial)
    wheels.mkdir(parents=True, exist_ok=True)
    for wheel in best_wheels(pool.glob("*.whl"), packages, environment):
        link_or_copy(wheel, wheels / wheel.name)
    for name, wheel in own_wheels.items():
        if name in packages:
            shutil.copyfile(wheel, wheels / wheel.name)
    lacking = dict(packages)
    with report_progress(say, lambda: f"check the wheels of {environment.name} that are already here"):
        for wheel in list(wheels.glob("*.whl")):
            name = package_of(wheel)
            if name in packages and file_sha256(wheel) in packages[name].hashes:
                lacking.pop(name, None)
            else:
                wheel.unlink()
    if lacking:
        download(list(lacking.values()), environment, partial, say)  # pip checks the hashes
    pool.mkdir(exist_ok=True)
    for wheel in wheels.glob("*.whl"):
        if package_of(wheel) not in own_wheels:
            link_or_copy(wheel, pool / wheel.name)
    return wheels


def pool_beside(folder: Path) -> Path:
    """Return the folder of all wheels that were ever downloaded, beside the folder of an environment."""
    return folder.with_name("pool")


def platforms(machine: str) -> list[str]:
    """Return the platform tags of wheels that run on hosts with this processor, the newest glibc first.

    `machine` is "x86_64" or "aarch64". Raises KeyError for others.
    """
    minors = range(NEWEST_GLIBC_MINOR, OLDEST_GLIBC_MINOR[machine] - 1, -1)
    return [f"manylinux_2_{minor}_{machine}" for minor in minors] + [
        f"{legacy}_{machine}" for legacy in LEGACY[machine]
    ]


def supported_tags(environment: HostEnvironment) -> dict[Tag, int]:
    """Return {tag of wheels that the environment can install: its rank}; the best tag has rank 0."""
    major, minor = (int(number) for number in environment.python.split("."))
    names, interpreter = platforms(environment.machine), f"cp{major}{minor}"
    tags = [
        *cpython_tags((major, minor), [interpreter], names),
        *compatible_tags((major, minor), interpreter, names),
    ]
    return {tag: rank for rank, tag in enumerate(tags)}


def best_wheels(
    wheels: Iterable[Path], packages: Mapping[str, PinnedPackage], environment: HostEnvironment
) -> list[Path]:
    """Return the best of `wheels` for each package, judged by the file names alone; at most one each.

    A package without a wheel of its version for the environment has none in the result. `packages` is
    {normalized name: package}. File names decide, because a lock has the hashes of a package's wheels for
    every Python version and processor.
    """
    ranks = supported_tags(environment)
    best: dict[str, tuple[int, Path]] = {}
    for wheel in wheels:
        try:
            name, version, _, tags = parse_wheel_filename(wheel.name)
        except InvalidWheelFilename:
            continue
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
        if rank is not None and name in packages and str(version) == packages[name].version:
            best[name] = min(best.get(name, (rank, wheel)), (rank, wheel))
    return [wheel for _, wheel in best.values()]


def download(
    packages: Sequence[PinnedPackage], environment: HostEnvironment, partial: Path, say: Callable[[str], None]
) -> None:
    """Download the wheels of these packages into `partial`/wheels with pip, which verifies their hashes.

    Raises ValueError with pip's output if that fails, and ValueError if this Python has no pip.
    """
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
        report_progress(say, lambda: readable(size_below(temporary)), REPORT_SECONDS),
    ):
        done = subprocess.run(
            download_command(environment, lock, partial / "wheels"),
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**pip_environment(), "TMPDIR": str(temporary)},
            check=False,
        )
    if done.returncode:
        output = without_passwords(log.read_text(encoding="utf-8", errors="replace"))
        raise ValueError(
            f"The wheels of {lock}, for {environment.name}, could not be downloaded; nothing was installed. "
            f"pip printed:\n{output[-2000:]}"
        )
    size = size_below(partial / "wheels") - at_hand
    say(f"  {readable(size)}, {time.monotonic() - started:.0f} s")


def download_command(environment: HostEnvironment, lock: Path, wheels: Path) -> list[str]:
    """Return pip's command line that downloads the packages of the file `lock` into the folder `wheels`.

    It takes wheels for the environment's Python version and processor.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", "--no-input", "--disable-pip-version-check"]
    # This cache keeps completed files if a download is interrupted.
    command += [f"--cache-dir={wheels.parent / 'cache'}"]
    command += ["--implementation=cp", f"--python-version={environment.python}", f"--dest={wheels}"]
    command += [f"--abi={abi}" for abi in (f"cp{environment.python.replace('.', '')}", "abi3", "none")]
    command += [f"--platform={platform}" for platform in platforms(environment.machine)]
    return [*command, f"--requirement={lock}"]


def size_below(folder: Path) -> int:
    """Return the number of bytes in the files below a folder; 0 if there is no such folder.

    Another program may be filling the folder.
    """
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # the file may have been moved
            total += 0 if path.is_dir() else path.stat().st_size
    return total


def package_of(wheel: Path) -> str:
    """Return the normalized name of a wheel's package, from its file name.

    Example: package_of(Path("typing_extensions-4.12.2-py3-none-any.whl")) -> "typing-extensions"
    """
    return canonicalize_name(wheel.name.split("-")[0])


def link_or_copy(wheel: Path, place: Path) -> None:
    """Make `place` a hard link to `wheel`, or a copy if linking fails (another file system).

    A file that is at `place` is replaced.
    """
    fresh = place.with_suffix(f".{os.getpid()}")
    try:
        os.link(wheel, fresh)
    except OSError:
        shutil.copyfile(wheel, fresh)
    fresh.replace(place)
    fresh.unlink(missing_ok=True)  # renaming a hard link to the same file has no effect


def require_one_tensorflow(wheels: Path, package: Collection[str]) -> None:
    """Raise ValueError if a wheel has TensorFlow under another name than `package`, the environment's own."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as content:
            if "tensorflow/__init__.py" in content.namelist() and package_of(wheel) not in {*package, AWS}:
                raise ValueError(
                    f"trainer_program_requirements asks for {package_of(wheel)}, which is TensorFlow under "
                    "another name: it would overwrite the environment's own. Ask for tensorflow, or for none"
                )
