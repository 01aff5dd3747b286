import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from plugins.module_utils.checks import disk_check as checked

GB = 1_000_000_000


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[Path, int]:
    """Give each directory below the test's own a file system with so many free bytes."""
    sizes: dict[Path, int] = {}
    monkeypatch.setattr(checked, "login_home", lambda: tmp_path / "home")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=sizes[path]))
    for name in ("opt", "var", "home"):
        (tmp_path / name).mkdir()
        sizes[tmp_path / name] = 10 * GB
    stat = Path.stat

    def of_its_own(path: Path, **options: bool) -> object:
        found = stat(path, **options)
        return SimpleNamespace(st_dev=str(path), st_mode=found.st_mode) if path in sizes else found

    monkeypatch.setattr(Path, "stat", of_its_own)
    return sizes


def check(folder: Path, archive: int = 0, environment: int = 0) -> tuple[str, str, str]:
    found = checked.disk_finding(folder / "opt", [folder / "var" / "runs"], archive, environment)
    return found.state, found.found, found.remedy


@pytest.mark.usefixtures("free")
def test_enough_space_for_everything_passes(tmp_path: Path) -> None:
    state, found, remedy = check(tmp_path, GB, 7 * GB)
    assert (state, remedy) == ("ok", "")
    assert found == f"{tmp_path}/opt has 10.0 GB free, {tmp_path}/var has 10.0 GB free"


def test_too_little_space_for_a_new_deployment_fails(free: dict[Path, int], tmp_path: Path) -> None:
    free[tmp_path / "opt"] = 7 * GB
    state, found, remedy = check(tmp_path, GB, 7 * GB)
    assert (state, found) == ("failed", f"{tmp_path}/opt has 7.0 GB free, 8.0 GB are needed")
    assert f"{tmp_path}/opt/environments" in remedy
    assert check(tmp_path)[0] == "ok", "what is deployed needs no more"


def test_too_little_space_for_the_carried_archive_fails(free: dict[Path, int], tmp_path: Path) -> None:
    free[tmp_path / "home"] = GB // 2
    assert check(tmp_path, GB, 2 * GB)[1] == f"{tmp_path}/home has 500.0 MB free, 1.0 GB are needed"


def test_too_little_space_for_runs_gets_a_warning_or_fails(free: dict[Path, int], tmp_path: Path) -> None:
    free[tmp_path / "var"] = GB // 2
    state, found, remedy = check(tmp_path)
    assert state == "warning"
    assert f"{tmp_path}/var has 500.0 MB free, 1.0 GB are needed" in found
    assert "trainer_state_directory" in remedy
    free[tmp_path / "var"] = GB // 20
    assert check(tmp_path)[0] == "failed"
