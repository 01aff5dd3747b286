import os
import subprocess
import sys
from pathlib import Path

import pytest

from plugins.module_utils import lease
from plugins.module_utils.lease import (
    LOST,
    SECONDS,
    Lease,
    give_back,
    read,
    renew,
    take,
    time_of_reading,
    undo,
)
from tests.repository import ROOT

ADA = Lease("a", holder="ada@laptop (deploy.yml)")
GIVE_BACK = (
    "import sys, pathlib; from plugins.module_utils.lease import *; give_back(pathlib.Path(sys.argv[1]), 'a')"
)
BEN = Lease("b", holder="ben@desk (train.yml, run r1)")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "psfleet.lease"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time since the host was booted, in its first place."""
    now = [1000.0]
    monkeypatch.setattr(lease, "seconds_up", lambda: now[0])
    return now


def test_a_held_lease_is_refused_to_others_with_its_holder_and_times(file: Path, clock: list[float]) -> None:
    assert take(file, ADA, 0) == ""
    assert file.stat().st_mode & 0o777 == 0o600
    clock[0] += 30
    said = take(file, BEN, 0)
    assert said == f"{ADA.holder} has held it for 30 s, and keeps it for another 60 s, or until it ends"
    assert take(file, ADA, 0) == "", "a machine may be two hosts of an inventory"
    give_back(file, BEN.token)
    assert not renew(file, BEN.token)
    assert read(file).token == ADA.token
    give_back(file, ADA.token)
    assert not renew(file, ADA.token)
    assert take(file, BEN, 0) == ""


def test_a_lease_expires_unless_it_is_renewed(file: Path, clock: list[float]) -> None:
    take(file, ADA, 0)
    for _ in range(3):
        clock[0] += SECONDS - 1
        assert take(file, BEN, 0) != ""
        assert renew(file, ADA.token)
    clock[0] += SECONDS
    assert take(file, BEN, 0) == ""
    assert not renew(file, ADA.token)
    assert LOST


@pytest.mark.parametrize("given_back", [True, False])
@pytest.mark.parametrize("meanwhile", [True, False], ids=["looked while it was held", "looked before"])
def test_a_reading_from_before_another_holders_change_is_refused(
    file: Path, clock: list[float], *, given_back: bool, meanwhile: bool
) -> None:
    looked = time_of_reading(file, deployed=False)
    take(file, ADA, 0)
    clock[0] += 1
    looked = time_of_reading(file, deployed=False) if meanwhile else looked
    clock[0] += 1
    if given_back:
        give_back(file, ADA.token)
    clock[0] += SECONDS
    refused = f"{ADA.holder} has changed the host since this command looked at it: try again"
    assert take(file, BEN, 0, looked) == refused
    assert take(file, BEN, 0, time_of_reading(file, deployed=False)) == ""


def test_a_reading_stays_valid_after_a_holder_that_changed_nothing(file: Path, clock: list[float]) -> None:
    looked = time_of_reading(file, deployed=False)
    take(file, ADA, 0)
    clock[0] += 1
    undo(file, BEN.token)
    assert read(file).token == ADA.token
    undo(file, ADA.token)
    assert take(file, BEN, 0, looked) == ""
    undo(file, BEN.token)
    take(file, BEN, 0)
    clock[0] += 1
    take(file, BEN, 0)
    undo(file, BEN.token)
    assert "has changed the host" in take(file, ADA, 0, looked), "its holder had acted before"


@pytest.mark.parametrize("deployed_since", [True, False])
def test_a_reading_from_before_a_reset_is_refused(
    file: Path, clock: list[float], *, deployed_since: bool
) -> None:
    """There may be no lease since a boot: the first reading of a deployed host creates one."""
    looked = time_of_reading(file, deployed=True)
    clock[0] += 1
    take(file, ADA, 0)
    file.unlink()
    if deployed_since:
        take(file, ADA, 0)
        undo(file, ADA.token)
    clock[0] += 1
    refused = "another playbook, or a reboot, has changed the host since this command looked at it: try again"
    assert take(file, BEN, 0, looked) == refused
    assert take(file, BEN, 0, time_of_reading(file, deployed=True)) == ""


def test_a_reading_from_before_a_boot_is_refused(file: Path, clock: list[float]) -> None:
    looked = time_of_reading(file, deployed=True)
    file.unlink()
    clock[0] = 30
    time_of_reading(file, deployed=True)
    clock[0] = 40
    assert "or a reboot" in take(file, BEN, 0, looked)


def test_a_reading_of_a_bare_host_creates_no_file(file: Path) -> None:
    looked = time_of_reading(file, deployed=False)
    assert not file.exists()
    assert take(file, ADA, 0, looked) == ""


def test_a_command_that_waits_gets_the_lease_once_it_is_released(file: Path) -> None:
    take(file, ADA, 0)
    with subprocess.Popen([sys.executable, "-c", GIVE_BACK, str(file)], cwd=ROOT):
        assert take(file, BEN, 60) == ""


def test_a_reading_that_waited_for_the_holder_to_end_is_valid(file: Path) -> None:
    take(file, ADA, 0)
    early = time_of_reading(file, deployed=True)
    with subprocess.Popen([sys.executable, "-c", GIVE_BACK, str(file)], cwd=ROOT):
        looked = time_of_reading(file, 60, deployed=True)
    assert take(file, BEN, 0, early).startswith("ada")
    assert take(file, BEN, 0, looked) == ""


def test_only_one_of_many_simultaneous_commands_gets_the_lease(file: Path) -> None:
    code = (
        "import sys, pathlib; from plugins.module_utils.lease import *\n"
        "sys.stdin.read()\n"
        "print(take(pathlib.Path(sys.argv[1]), Lease(sys.argv[2], sys.argv[2]), 0, 0))"
    )
    commands = [[sys.executable, "-c", code, str(file), str(number)] for number in range(4)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    tried = [subprocess.Popen(command, cwd=ROOT, **pipes) for command in commands]  # type: ignore[call-overload]
    for process in tried:
        process.stdin.close()
    said = [process.stdout.read().strip() for process in tried]
    for process in tried:
        process.stdout.close()
        assert process.wait() == 0
    assert said.count("") == 1
    holder = read(file).holder
    assert all(f"{holder} has held it" in words for words in said if words)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"began": "x"}', b'{"ends": 7}', b"{" * 9000])
def test_a_damaged_lease_counts_as_none(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert read(file) == Lease()
    assert take(file, ADA, 0) == ""


def test_a_link_in_place_of_the_lease_is_not_followed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("as it was")
    file.symlink_to(tmp_path / "precious")
    assert read(file) == Lease()
    with pytest.raises(OSError, match="symbolic links"):
        take(file, ADA, 0)
    assert (tmp_path / "precious").read_text() == "as it was"


def test_a_renewal_does_not_recreate_a_lease_that_a_reset_removed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is removed after the renewal has seen it and before the renewal opens it."""
    take(file, ADA, 0)
    opening = os.open

    def removed_before(path: Path, *how: int) -> int:
        file.unlink(missing_ok=True)
        return opening(path, *how)

    monkeypatch.setattr(os, "open", removed_before)
    assert not renew(file, ADA.token)
    give_back(file, ADA.token)
    assert not file.exists()
