"""Wheels on the controller: those at hand that fit an environment, the others downloaded, all verified."""

import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from psfleet.carry.locks import Pinned
from psfleet.carry.long_step import told
from psfleet.carry.wheel_download import download, platforms
from trainer.host.content_directory import file_sha256
from trainer.host.environment import HostEnvironment


def obtain(
    packages: Mapping[str, Pinned],
    environment: HostEnvironment,
    partial: Path,
    pool: Path,
    say: Callable[[str], None],
) -> Path:
    """Return a folder below `partial` with a wheel of every package whose hash a lock allows.

    They come from what an interrupted download has left there, from `pool`, and else from the package index.
    Raises ValueError where a wheel cannot be had or is not the locked one.
    """
    wheels = partial / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for wheel in fitting(pool.glob("*.whl"), packages, environment):
        link(wheel, wheels / wheel.name)
    lacking = dict(packages)
    with told(say, lambda: f"check the wheels of {environment.name} at hand"):
        for wheel in list(wheels.glob("*.whl")):
            name = package_of(wheel)
            if name in packages and file_sha256(wheel) in packages[name].hashes:
                lacking.pop(name, None)
            else:
                wheel.unlink()
    if lacking:
        download(list(lacking.values()), environment, partial, say)  # pip holds them against the hashes
    pool.mkdir(exist_ok=True)
    for wheel in wheels.glob("*.whl"):
        link(wheel, pool / wheel.name)
    return wheels


def supported_tags(environment: HostEnvironment) -> dict[Tag, int]:
    """Return the tags of the wheels that an environment can install, each with its rank, the best first."""
    major, minor = (int(number) for number in environment.python.split("."))
    names, interpreter = platforms(environment.machine), f"cp{major}{minor}"
    tags = [
        *cpython_tags((major, minor), [interpreter], names),
        *compatible_tags((major, minor), interpreter, names),
    ]
    return {tag: rank for rank, tag in enumerate(tags)}


def fitting(
    wheels: Iterable[Path], packages: Mapping[str, Pinned], environment: HostEnvironment
) -> list[Path]:
    """Return of these wheels the one for each package that suits an environment best, by their names alone.

    A lock has the hashes of a package's wheels for every Python and processor.
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


def package_of(wheel: Path) -> str:
    """Return the normalized name of a wheel's package."""
    return canonicalize_name(wheel.name.split("-")[0])


def link(wheel: Path, place: Path) -> None:
    """Let `place` be the same file as `wheel`, or a copy of it on another file system."""
    fresh = place.with_suffix(f".{os.getpid()}")
    try:
        os.link(wheel, fresh)
    except OSError:
        shutil.copyfile(wheel, fresh)
    fresh.replace(place)
    fresh.unlink(missing_ok=True)  # a rename of a file to its own second name does nothing


def require_own_modules(wheels: Path) -> None:
    """Raise ValueError for a wheel that would put another TensorFlow over that of the environment."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as content:
            if "tensorflow/__init__.py" in content.namelist():
                raise ValueError(
                    f"trainer_program_requirements asks for {package_of(wheel)}, which is TensorFlow under "
                    "another name: it would overwrite the environment's own. Ask for tensorflow, or for none"
                )
