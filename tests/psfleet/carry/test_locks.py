"""The locks in roles/package_store/files, as `make lock` wrote them."""

import pytest
import tomllib

from plugins.module_utils.environments.environment import (
    TENSORFLOW_VERSION,
    HostEnvironment,
    every_environment,
)
from psfleet.carry.locks import PinnedPackage, lock_text, read_lock, read_locks
from tests.repository import ROOT

LOCKS = ROOT / "roles" / "package_store" / "files"
ENVIRONMENTS = every_environment()


def packages_of(environment: HostEnvironment) -> dict[str, PinnedPackage]:
    return read_locks(LOCKS / name for name in environment.locks)


def versions(lock: str) -> dict[str, str]:
    return {name: package.version for name, package in read_locks([LOCKS / lock]).items()}


def test_a_lock_survives_a_round_trip_through_its_text() -> None:
    packages = {"a-b": PinnedPackage("A.b", "1.0", frozenset({"0" * 64, "1" * 64}))}
    assert read_lock(lock_text(packages.values())) == packages


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda environment: environment.name)
def test_every_environment_has_one_tensorflow_of_the_locked_version(
    environment: HostEnvironment,
) -> None:
    packages = packages_of(environment)
    wheels = [packages[name].version for name in ("tensorflow", "tensorflow-cpu") if name in packages]
    assert wheels == [TENSORFLOW_VERSION]
    assert [name for name in packages if name.startswith("nvidia")] == (
        list(read_locks([LOCKS / "cuda.txt"])) if environment.device == "gpu" else []
    )


def test_the_locks_pin_every_package_with_hashes_and_name_no_registry() -> None:
    wanted = {"installer.txt"}
    for environment in ENVIRONMENTS:
        wanted |= {*environment.locks, environment.tensorboard_lock}
    assert wanted <= {path.name for path in LOCKS.iterdir()}
    for name in wanted:
        packages = read_locks([LOCKS / name])
        assert packages
        assert all(package.hashes for package in packages.values()), name
        assert "://" not in (LOCKS / name).read_text(encoding="utf-8")


def test_locks_of_all_pythons_have_the_same_library_versions_except_for_python_3_10() -> None:
    leading = versions("python3.11.txt")
    for python in ("3.12", "3.13"):
        assert versions(f"python{python}.txt") == leading
    oldest = versions("python3.10.txt")
    assert set(oldest) == set(leading)
    # These have no wheel for Python 3.10 any more.
    assert {name for name in oldest if oldest[name] != leading[name]} == {"keras", "numpy"}


def test_the_project_pins_the_same_tensorflow_and_uv_as_the_locks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pinned = project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    versions_of = {name: version for name, _, version in (line.partition("==") for line in pinned)}
    assert versions_of["tensorflow-cpu"] == TENSORFLOW_VERSION
    assert versions("installer.txt") == {"uv": versions_of["uv"]}
