"""What host_facts finds of the releases, programs and environments of a host."""

import os
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.content_directory import content_hash
from tests.plugins.modules.module_run import fact_of

NOBODY_ELSE, EVERYBODY = 0o750, 0o755


def put(folder: Path, package: str = "") -> str:
    """Put a file into a release of a folder, for root's group alone, and return the release's name."""
    content = folder / "new" / package
    content.mkdir(parents=True)
    (content / "train.py").write_text("print(1)\n")
    name = content_hash(content)
    (folder / "new").rename(folder / name)
    for path in (folder, folder / name):
        path.chmod(NOBODY_ELSE)
    (folder / name / package / "train.py").chmod(0o640)
    return name


def found(directory: Path, *names: str) -> dict[str, Any]:
    """Return what the part answers for releases and programs of these names, which are for root's group."""
    asked = list(names)
    paths: dict[str, Any] = {"install_directory": str(directory), "run_directory": str(directory / "run")}
    return fact_of("content", **paths, group="root", releases=asked, programs=asked)


def test_a_host_without_a_deployment_has_nothing(tmp_path: Path) -> None:
    nothing: dict[str, list[str]] = {"releases": [], "programs": [], "environments": [], "settled": []}
    assert found(tmp_path / "opt", "0" * 12) == nothing
    paths: dict[str, Any] = {"install_directory": str(tmp_path), "run_directory": str(tmp_path / "run")}
    assert fact_of("content", **paths, programs=["0" * 12], group="no-such") == nothing


def test_a_release_counts_if_its_files_are_those_that_its_name_stands_for(tmp_path: Path) -> None:
    release = put(tmp_path / "releases", "trainer")
    assert found(tmp_path, release)["releases"] == [release]
    (tmp_path / "releases" / release / "trainer" / "train.py").write_text("print(2)\n")
    assert found(tmp_path, release)["releases"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's files are private")
def test_a_program_counts_if_only_the_tasks_user_can_read_it(tmp_path: Path) -> None:
    program = put(tmp_path / "programs")
    assert found(tmp_path, program)["programs"] == [program]
    (tmp_path / "programs" / program).chmod(EVERYBODY)
    assert found(tmp_path, program)["programs"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs environments")
def test_an_environment_counts_once_root_has_marked_it_as_complete(tmp_path: Path) -> None:
    whole, partial, packages = ("a" * 12, "b" * 12, "c" * 12)
    for name in (whole, partial, packages):
        (tmp_path / "environments" / name).mkdir(parents=True)
    (tmp_path / "environments" / whole / ".complete").write_text("tensorflow 2.21.0\n")
    of_a_package = tmp_path / "environments" / packages / ".complete"
    of_a_package.write_text("tensorflow 2.21.0\n")
    os.chown(of_a_package, 65534, 65534)
    assert found(tmp_path)["environments"] == [whole]
