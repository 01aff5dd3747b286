import subprocess
from pathlib import Path

import pytest

from plugins.module_utils.tasks.boots import (
    boot_file,
    boot_of,
    rebooted_command,
    rebooted_since,
    unless_going_down,
    write_boot_command,
)


def proc(folder: Path, boot: str, began: int, name: str = "systemd") -> Path:
    (folder / "sys/kernel/random").mkdir(parents=True)
    (folder / "sys/kernel/random/boot_id").write_text(f"{boot}\n")
    (folder / "1").mkdir()
    fields = [f"1 ({name}) S", *map(str, range(4, 22)), str(began), "50036736 4162"]
    (folder / "1/stat").write_text(" ".join(fields) + "\n")
    return folder


def test_each_boot_of_a_host_or_container_has_its_own_id(tmp_path: Path) -> None:
    boots = [("a", 3, "systemd"), ("b", 3, "systemd"), ("a", 99, "systemd"), ("a", 99, "odd ) name")]
    told = [boot_of(proc(tmp_path / str(place), *boot)) for place, boot in enumerate(boots)]
    assert told == ["a 3", "b 3", "a 99", "a 99"]


@pytest.mark.parametrize(
    ("told", "rebooted"), [(None, False), ("", False), (boot_of(), False), ("other 7", True)]
)
def test_a_task_with_the_id_of_another_boot_was_started_before_this_boot(
    tmp_path: Path, told: str | None, rebooted: bool
) -> None:
    """The shell command that the watcher runs on a host gives the same answer."""
    file = boot_file(tmp_path, "worker", 1)
    file.parent.mkdir()
    if told is not None:
        file.write_text(told and f"{told}\n")
    assert rebooted_since(file) is rebooted
    command = rebooted_command([file, boot_file(tmp_path, "ps", 0)])
    printed = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (printed.stdout.splitlines(), printed.stderr) == ([str(file)] * rebooted, "")


def test_a_unit_writes_the_boot_in_which_it_starts(tmp_path: Path) -> None:
    file = tmp_path / "ps-0.boot"
    subprocess.run(["sh", "-c", write_boot_command(str(file))], check=True)
    assert file.read_text() == f"{boot_of()}\n"


def test_a_host_that_shuts_down_reports_only_its_shutdown(tmp_path: Path) -> None:
    shutdown = tmp_path / "shutdown"
    for exists in (False, True):
        if exists:
            shutdown.touch()
        command = ["sh", "-c", unless_going_down("echo worker0 has ended", shutdown)]
        printed = subprocess.run(command, capture_output=True, text=True, check=False)
        expected = ("", "the host goes down\n") if exists else ("worker0 has ended\n", "")
        assert (printed.stdout, printed.stderr) == expected
