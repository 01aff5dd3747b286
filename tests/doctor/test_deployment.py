import json
from pathlib import Path

import pytest

from trainer.host.check import Check
from trainer.host.deployment import Deployment, Today, deployment_check, is_installed, read_deployment
from trainer.host.environment import TENSORFLOW_VERSION

WHOLE = Deployment("aaaaaaaaaaaa", "bbbbbbbbbbbb", TENSORFLOW_VERSION, "cccccccccccc")


TODAY = Today(WHOLE.plan, WHOLE.release, WHOLE.environment)


def check_of(
    found: Deployment, plan: str = TODAY.plan, release: str = TODAY.release, *, installed: bool = True
) -> Check:
    return deployment_check(found, Today(plan, release, TODAY.lock), installed=installed)


def deploy(folder: Path) -> tuple[Path, Path]:
    """Leave what deploy.yml leaves, and return the directories of installation and configuration."""
    environment = folder / "opt" / "environments" / WHOLE.environment
    release = folder / "opt" / "releases" / WHOLE.release
    etc = folder / "etc"
    for directory in (environment, release, etc):
        directory.mkdir(parents=True)
    (environment / ".complete").write_text(f"tensorflow {TENSORFLOW_VERSION}\n")
    (folder / "opt" / "environment").symlink_to(f"environments/{WHOLE.environment}")
    (folder / "opt" / "current").symlink_to(f"releases/{WHOLE.release}")
    (etc / "plan.json").write_text(json.dumps({"hash": WHOLE.plan}))
    return folder / "opt", etc


def test_what_a_deployment_left_is_read(tmp_path: Path) -> None:
    assert read_deployment(*deploy(tmp_path)) == WHOLE


def test_a_bare_host_is_not_deployed(tmp_path: Path) -> None:
    found = read_deployment(tmp_path / "opt", tmp_path / "etc")
    assert found == Deployment()
    assert check_of(found, installed=False).state == "skipped"


@pytest.mark.parametrize(
    "lost", ["opt/environment", f"opt/environments/{WHOLE.environment}/.complete", "opt/current"]
)
def test_half_a_deployment_is_no_deployment(tmp_path: Path, lost: str) -> None:
    directories = deploy(tmp_path)
    (tmp_path / lost).unlink()
    check = check_of(read_deployment(*directories))
    assert check.state == "failed"
    assert "was interrupted" in check.found
    assert "deploy.yml" in check.remedy


def test_what_is_deployed_is_told() -> None:
    check = check_of(WHOLE)
    assert check.state == "ok"
    assert check.found == f"TensorFlow {TENSORFLOW_VERSION}, lock bbbbbbbbbbbb, release cccccccccccc"


@pytest.mark.parametrize(
    ("plan", "release", "tensorflow", "words"),
    [
        ("x", WHOLE.release, TENSORFLOW_VERSION, "the inventory has another plan today"),
        (WHOLE.plan, "dddddddddddd", TENSORFLOW_VERSION, "the trainer's release is dddddddddddd today"),
        (WHOLE.plan, WHOLE.release, "2.20.0", f"psfleet deploys TensorFlow {TENSORFLOW_VERSION} today"),
    ],
)
def test_what_is_not_todays_deserves_a_warning(plan: str, release: str, tensorflow: str, words: str) -> None:
    found = Deployment(WHOLE.plan, WHOLE.environment, tensorflow, WHOLE.release)
    check = check_of(found, plan, release)
    assert check.state == "warning"
    assert words in check.found
    assert "deploy.yml" in check.remedy


def test_another_lock_than_todays_deserves_a_warning() -> None:
    """A program's own environment has another hash, and is made from that of the lock."""
    with_program = Deployment(WHOLE.plan, "eeeeeeeeeeee", WHOLE.tensorflow, WHOLE.release)
    assert check_of(with_program).state == "ok"
    check = check_of(WHOLE, installed=False)
    assert check.state == "warning"
    assert check.found.endswith("; the lock is bbbbbbbbbbbb today")
    unsupported = deployment_check(WHOLE, Today(WHOLE.plan, WHOLE.release, ""), installed=False)
    assert unsupported.state == "ok", "another check says so"


def test_an_environment_that_is_half_installed_is_none(tmp_path: Path) -> None:
    install, _ = deploy(tmp_path)
    assert is_installed(install, WHOLE.environment)
    (install / "environments" / "eeeeeeeeeeee").mkdir()
    assert not is_installed(install, "eeeeeeeeeeee")
    assert not is_installed(install, "")
