"""The timer of the metrics, with a systemd that records its commands."""

import os
from pathlib import Path

import pytest

from plugins.module_utils.tasks.metrics_timer import FILES, SERVICE, TIMER, MetricsTimer


class Systemd:
    """Knows which units are active, and makes and needs the link of an enabled one as systemd does."""

    def __init__(self, wanted: Path) -> None:
        """Begin with nothing active. `wanted` is where the link goes."""
        self.wanted, self.active, self.failed, self.told = wanted, set[str](), set[str](), list[str]()

    def __call__(self, *arguments: str) -> str:
        """Act as systemctl."""
        verb, unit = arguments[0], arguments[-1]
        if verb == "show":
            return "failed\n" if unit in self.failed else "active\n" if unit in self.active else "inactive\n"
        self.told.append(f"{verb} {unit}")
        if verb == "enable" and not self.wanted.is_symlink():
            self.wanted.symlink_to("/nowhere")
        elif verb in {"start", "restart"}:
            self.active.add(unit)
        elif verb == "reset-failed":
            self.failed.remove(unit)
        elif verb == "stop":
            self.active.remove(unit)
        return ""


@pytest.fixture
def systemd(tmp_path: Path) -> Systemd:
    return Systemd(tmp_path / "wants")


def directory(folder: Path, name: str) -> Path:
    """Make a textfile directory that holds our metrics, and another exporter's."""
    path = folder / name
    path.mkdir()
    for file in (*FILES, "apt.prom"):
        (path / file).write_text("x 1\n")
    return path


def timer(folder: Path, systemd: Systemd, wanted: str) -> MetricsTimer:
    return MetricsTimer(wanted, folder / "record", systemd, systemd.wanted)


def bring(folder: Path, systemd: Systemd, wanted: str) -> bool:
    """Bring the host into the state, and return whether that changed anything."""
    changed = not timer(folder, systemd, wanted).is_fulfilled()
    if changed:
        timer(folder, systemd, wanted).apply()
    assert timer(folder, systemd, wanted).is_fulfilled()
    return changed


def test_the_timer_is_enabled_and_disabled_idempotently(tmp_path: Path, systemd: Systemd) -> None:
    place = directory(tmp_path, "textfiles")
    assert bring(tmp_path, systemd, str(place))
    assert systemd.active == {TIMER, SERVICE}
    assert not bring(tmp_path, systemd, str(place))
    assert bring(tmp_path, systemd, "")
    assert not systemd.active
    assert [file.name for file in place.iterdir()] == ["apt.prom"]
    assert not bring(tmp_path, systemd, "")
    assert [file.name for file in tmp_path.iterdir()] == ["textfiles"]


def test_a_change_of_the_directory_removes_the_metrics_from_the_old_one(
    tmp_path: Path, systemd: Systemd
) -> None:
    first, second = directory(tmp_path, "first"), directory(tmp_path, "second")
    bring(tmp_path, systemd, str(first))
    assert bring(tmp_path, systemd, str(second))
    assert [file.name for file in first.iterdir()] == ["apt.prom"]
    assert (second / FILES[0]).exists()
    assert TIMER in systemd.active


def test_a_stopped_timer_is_started_again(tmp_path: Path, systemd: Systemd) -> None:
    place = directory(tmp_path, "textfiles")
    bring(tmp_path, systemd, str(place))
    systemd.active.clear()
    assert bring(tmp_path, systemd, str(place))


def test_the_timer_is_disabled_also_without_its_directory_or_record(tmp_path: Path, systemd: Systemd) -> None:
    bring(tmp_path, systemd, str(tmp_path / "gone"))
    assert bring(tmp_path, systemd, "")
    bring(tmp_path, systemd, str(tmp_path / "gone"))
    (tmp_path / "record").unlink()
    assert bring(tmp_path, systemd, "")
    assert not systemd.active


def test_disabling_the_timer_leaves_no_failed_unit(tmp_path: Path, systemd: Systemd) -> None:
    bring(tmp_path, systemd, str(directory(tmp_path, "textfiles")))
    systemd.active.remove(SERVICE)
    systemd.failed.add(SERVICE)
    bring(tmp_path, systemd, "")
    assert not systemd.failed | systemd.active


def test_a_missing_directory_is_refused_and_one_of_root_is_accepted(tmp_path: Path, systemd: Systemd) -> None:
    assert timer(tmp_path, systemd, "").problem() == ""
    missing = timer(tmp_path, systemd, "/no/such").problem()
    assert missing.startswith("trainer_metrics_directory is '/no/such', and this host has no such directory")
    assert "group_vars/tf_cluster.yml" in missing
    assert timer(tmp_path, systemd, "/usr").problem() == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_directory_of_another_user_is_refused(tmp_path: Path, systemd: Systemd) -> None:
    os.chown(tmp_path, 1, 1)
    problem = timer(tmp_path, systemd, str(tmp_path)).problem()
    assert f"is '{tmp_path}', which belongs to daemon; expected a directory of root" in problem
