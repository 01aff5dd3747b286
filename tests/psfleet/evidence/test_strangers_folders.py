"""A folder of a run that somebody else has made: judging and packing it harms nobody."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from psfleet.evidence.__main__ import main
from psfleet.evidence.manifest import Manifest, pack
from psfleet.evidence.untrusted_files import write_whole
from tests.repository import ROOT


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret" / "key"
    file.parent.mkdir()
    file.write_text("precious")
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "logs").mkdir(parents=True)
    return folder


@pytest.mark.parametrize("name", ["verdict.json", ".verdict.json.new"])
def test_a_link_in_the_folder_is_not_written_through(folder: Path, secret: Path, name: str) -> None:
    (folder / name).symlink_to(secret)
    main([str(folder)])
    assert secret.read_text() == "precious"
    assert not (folder / "verdict.json").is_symlink()


def test_a_link_that_foresees_the_process_is_not_followed(
    folder: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getpid", lambda: 7)
    (folder / ".file.7.new").symlink_to(secret)
    write_whole(folder / "file", b"new")
    assert (folder / "file").read_text() == "new"
    assert secret.read_text() == "precious"


def test_what_was_begun_is_removed_where_it_cannot_be_written(folder: Path) -> None:
    (folder / "file").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_whole(folder / "file", b"new")
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_links_bring_no_files_of_elsewhere_into_a_pack(folder: Path, secret: Path) -> None:
    (folder / "events").symlink_to(secret.parent)
    (folder / "logs" / "ps0.out").symlink_to(secret)
    (folder / "report.html").symlink_to(secret)
    Manifest.of(folder).write(folder)
    assert pack(folder, folder.parent / "run.tar.gz") == ["manifest.json"]


def test_names_of_files_do_not_steer_the_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Manifest.of(folder).write(folder)
    (folder / "logs" / "\x1b[31m\udcffred.out").write_text("")
    main([str(folder)])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "red.out was added" in line)
    assert line.isprintable()


@pytest.mark.parametrize("name", ["settings.json", "manifest.json", "events/worker0.jsonl"])
def test_what_has_no_end_is_not_waited_for(folder: Path, name: str) -> None:
    (folder / "events").mkdir()
    os.mkfifo(folder / name)
    command = [sys.executable, "-m", "psfleet.evidence", str(folder)]
    judged = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert judged.returncode == 2
    assert name == "events/worker0.jsonl" or "neither a file nor a folder" in judged.stdout + judged.stderr
