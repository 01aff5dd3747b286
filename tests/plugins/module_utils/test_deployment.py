import json
from dataclasses import replace
from pathlib import Path

import pytest

from plugins.module_utils.deployment import (
    Deployment,
    TodaysHashes,
    environment_finding,
    is_installed,
    lacks_cuda,
    program_environments,
    read_deployment,
)
from plugins.module_utils.environments.environment import TENSORFLOW_VERSION
from plugins.module_utils.host.check import failed, ok, skipped, warning

WHOLE = Deployment("aaaaaaaaaaaa", "bbbbbbbbbbbb", TENSORFLOW_VERSION, "cccccccccccc")
TODAY = TodaysHashes(WHOLE.plan, WHOLE.release, WHOLE.environment)


def deploy(folder: Path) -> tuple[Path, Path]:
    """Write the files of a deployment, and return the directories of installation and configuration."""
    environment = folder / "opt" / "environments" / WHOLE.environment
    release = folder / "opt" / "releases" / WHOLE.release
    etc = folder / "etc"
    for directory in (environment, release, etc):
        directory.mkdir(parents=True)
    (environment / ".complete").write_text(f"tensorflow {TENSORFLOW_VERSION}\n")
    (folder / "opt" / "environment").symlink_to(f"environments/{WHOLE.environment}")
    (folder / "opt" / "current").symlink_to(f"releases/{WHOLE.release}")
    (etc / "plan.json").write_text(json.dumps({"tasks": ["x" * 100_000], "hash": WHOLE.plan}))
    return folder / "opt", etc


def test_the_state_of_a_deployment_is_read_and_a_bare_host_counts_as_not_deployed(tmp_path: Path) -> None:
    assert read_deployment(*deploy(tmp_path)) == WHOLE
    found = read_deployment(tmp_path / "other", tmp_path / "etc" / "other")
    assert found == Deployment()
    assert environment_finding(found, TODAY, installed=False) == skipped("not deployed")


MARKER = f"opt/environments/{WHOLE.environment}/.complete"


@pytest.mark.parametrize(
    ("lost", "other", "lacking"),
    [
        ("opt/environment", b"", "Python environment"),
        (MARKER, b"", "Python environment"),
        (MARKER, b"tensorboard 2.20.0\n", "Python environment"),
        (MARKER, b"tensorflow \xff 2.20.0\n", "Python environment"),
        ("opt/current", b"", "trainer"),
    ],
)
def test_an_interrupted_deployment_fails_the_check(
    tmp_path: Path, lost: str, other: bytes, lacking: str
) -> None:
    directories = deploy(tmp_path)
    (tmp_path / lost).unlink()
    if other:
        (tmp_path / lost).write_bytes(other)
    assert environment_finding(read_deployment(*directories), TODAY, installed=True) == failed(
        f"it has a plan, but no {lacking} that is complete: a deployment was interrupted",
        "`ansible-playbook deploy.yml` finishes it",
    )


@pytest.mark.parametrize(
    ("found", "today", "installed", "other"),
    [
        ({}, {}, True, ""),
        ({"plan": "x"}, {}, True, "; the inventory has another plan today"),
        ({"release": "x"}, {}, True, "; the trainer's release is cccccccccccc today"),
        ({"tensorflow": "2.20.0"}, {}, False, f"; psfleet deploys TensorFlow {TENSORFLOW_VERSION} today"),
        ({}, {}, False, "; the lock is bbbbbbbbbbbb today"),
        (
            {"release": "x", "plan": "x"},
            {},
            True,
            "; the trainer's release is cccccccccccc today, the inventory has another plan today",
        ),
        # A program's own environment has another hash, and is made from that of the lock.
        ({"environment": "eeeeeeeeeeee"}, {}, True, ""),
        ({}, {"lock": ""}, False, ""),  # not supported: another check says so
    ],
)
def test_a_deployment_that_differs_from_the_current_plan_or_release_gets_a_warning(
    found: dict[str, str], today: dict[str, str], installed: bool, other: str
) -> None:
    there = replace(WHOLE, **found)
    check = environment_finding(there, replace(TODAY, **today), installed=installed)
    told = f"TensorFlow {there.tensorflow}, lock {there.environment}, release {there.release}"
    remedy = "run `ansible-playbook deploy.yml` between runs"
    assert check == (warning(f"{told}{other}", remedy) if other else ok(told))


def test_an_incomplete_environment_does_not_count_as_installed(tmp_path: Path) -> None:
    install, _ = deploy(tmp_path)
    assert is_installed(install, WHOLE.environment)
    (install / "environments" / "eeeeeeeeeeee").mkdir()
    assert not is_installed(install, "eeeeeeeeeeee")
    assert not is_installed(install, "")


def test_a_tensorflow_without_cuda_is_recognised_by_its_package_name(tmp_path: Path) -> None:
    install, _ = deploy(tmp_path)
    packages = install / "environment" / "lib" / "python3.13" / "site-packages"
    (packages / "tensorflow-2.21.0.dist-info").mkdir(parents=True)
    assert not lacks_cuda(install)
    (packages / "tensorflow_cpu-2.21.0.dist-info").mkdir()
    assert lacks_cuda(install)
    assert not lacks_cuda(tmp_path)


def test_the_environments_of_programs_are_those_of_complete_links(tmp_path: Path) -> None:
    whole, half = "1" * 12, "2" * 12
    for name in (whole, half):
        (tmp_path / "environments" / name).mkdir(parents=True)
    (tmp_path / "environments" / whole / ".complete").touch()
    for key, name in (("a" * 12, whole), ("b" * 12, half), ("c" * 12, "3" * 12), ("d", whole)):
        (tmp_path / f"environment-{key}").symlink_to(f"environments/{name}")
    (tmp_path / "environment").symlink_to(f"environments/{whole}")
    assert program_environments(tmp_path) == {"a" * 12: whole}
    assert program_environments(tmp_path / "nowhere") == {}
