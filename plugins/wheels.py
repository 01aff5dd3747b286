"""Wheels on the controller: those at hand that fit an environment, the others downloaded, all verified."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from plugins.locks import Pinned, normalized
from plugins.long_step import told
from plugins.module_utils.content_directory import file_sha256
from plugins.wheel_download import download, platforms
from trainer.host.environment import HostEnvironment


def obtain(
    packages: Mapping[str, Pinned],
    environment: HostEnvironment,
    partial: Path,
    pool: Path,
    say: Callable[[str], None],
) -> Path:
    """Return a folder below `partial` with a verified wheel of every package.

    They come from what an interrupted download has left there, from `pool`, and else from the package index.
    Raises ValueError where a wheel cannot be had or is not the locked one.
    """
    wheels = partial / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for wheel in fitting(pool.glob("*.whl"), packages, environment):
        link(wheel, wheels / wheel.name)
    with told(say, lambda: f"check the wheels of {environment.name} at hand"):
        damaged = [wheel for wheel in wheels.glob("*.whl") if not is_locked(wheel, packages)]
    for wheel in damaged:
        wheel.unlink()
    at_hand = set(wheels.glob("*.whl"))
    present = {package_of(wheel) for wheel in at_hand}
    lacking = [package for name, package in packages.items() if name not in present]
    if lacking:
        download(lacking, environment, partial, say)
    verify(set(wheels.glob("*.whl")) - at_hand, {normalized(package.name): package for package in lacking})
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
    best: dict[str, tuple[int, str, Path]] = {}
    for wheel in wheels:
        package = packages.get(package_of(wheel))
        if package is None or wheel.name.split("-")[1] != package.version:
            continue
        try:
            tags = parse_wheel_filename(wheel.name)[3]
        except InvalidWheelFilename:
            continue
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
        if rank is not None:
            name = package_of(wheel)
            best[name] = min(best.get(name, (rank, wheel.name, wheel)), (rank, wheel.name, wheel))
    return [wheel for _, _, wheel in best.values()]


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


def verify(wheels: Iterable[Path], packages: Mapping[str, Pinned]) -> None:
    """Compare every wheel with its lock.

    Raises ValueError with the file and both hashes, or with the packages whose wheels are missing.
    """
    missing = dict(packages)
    for wheel in sorted(wheels):
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
