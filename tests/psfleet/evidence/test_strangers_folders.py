"""Judging and packing a stranger's run folder does no harm."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from psfleet.evidence.__main__ import main
from psfleet.evidence.run_manifest import Manifest, pack
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
    (folder / "plan.json").touch()
    return folder


@pytest.mark.parametrize("name", ["verdict.json", ".verdict.json.new"])
def test_a_link_in_the_folder_is_not_written_through(folder: Path, secret: Path, name: str) -> None:
    (folder / name).symlink_to(secret)
    main([str(folder)])
    assert secret.read_text() == "precious"
    assert not (folder / "verdict.json").is_symlink()


def test_a_link_at_the_name_of_the_temporary_file_is_not_followed(
    folder: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getpid", lambda: 7)
    (folder / ".file.7.new").symlink_to(secret)
    write_whole(folder / "file", b"new")
    assert (folder / "file").read_text() == "new"
    assert secret.read_text() == "precious"


def test_the_temporary_file_is_removed_if_the_file_cannot_be_written(folder: Path) -> None:
    (folder / "file").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_whole(folder / "file", b"new")
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_links_do_not_bring_other_files_into_an_archive(folder: Path, secret: Path) -> None:
    (folder / "events").symlink_to(secret.parent)
    (folder / "logs" / "ps0.out").symlink_to(secret)
    (folder / "report.html").symlink_to(secret)
    Manifest.of(folder).write(folder)
    assert pack(folder, folder.parent / "run.tar.gz") == ["manifest.json", "plan.json"]


def test_names_of_files_are_made_printable(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Manifest.of(folder).write(folder)
    (folder / "logs" / "\x1b[31m\udcffred.out").write_text("")
    main([str(folder)])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "red.out was added" in line)
    assert line.isprintable()


@pytest.mark.parametrize("name", ["settings.json", "manifest.json", "events/worker0.jsonl"])
def test_a_fifo_in_the_folder_does_not_block_the_verdict(folder: Path, name: str) -> None:
    (folder / "events").mkdir()
    os.mkfifo(folder / name)
    command = [sys.executable, "-m", "psfleet.evidence", str(folder)]
    judged = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert judged.returncode == 2
    assert name == "events/worker0.jsonl" or "neither a file nor a folder" in judged.stdout + judged.stderr


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a folder of runs and a packed run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.tar.gz").write_bytes(b"packed")
    (tmp_path / "runs" / "digits").mkdir(parents=True)
    (tmp_path / "runs" / "digits" / "plan.json").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        ("", 66, "'' is no folder. A run's folder is runs/ID"),
        ("nowhere", 66, "'nowhere' is no folder"),
        ("x" * 5000, 66, "is no path: File name too long"),
        (
            "run.tar.gz",
            66,
            "run.tar.gz: it is not a complete .tar.gz (not a gzip file). Expected a file that --pack wrote",
        ),
        (
            "runs",
            66,
            "runs is not the folder of a run, which has a plan.json: name one of those in it (digits)",
        ),
    ],
)
def test_a_path_without_a_run_is_refused_in_one_line_without_a_verdict(
    runs: Path, capsys: pytest.CaptureFixture[str], given: str, code: int, says: str
) -> None:
    assert main([given]) == code
    said = capsys.readouterr()
    assert (says in said.err, said.err.count("\n"), said.out) == (True, 1, "")
    assert not list(runs.rglob("verdict.json"))


def test_unknown_options_are_refused_with_exit_code_64(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["run", "--jsno"])
    assert (left.value.code, "unrecognized arguments: --jsno" in capsys.readouterr().err) == (64, True)


def judged_by_daemon(folder: Path, *redirected: str) -> subprocess.CompletedProcess[str]:
    """Judge a folder as an unprivileged user, in a shell that redirects the output."""
    line = f'exec "$0" -m psfleet.evidence "$1" {" ".join(redirected)}'
    account = ["setpriv", "--reuid=daemon", "--regid=daemon", "--clear-groups"]
    command = [*account, "sh", "-c", line, sys.executable, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("closed", ["run", "run/events", "."])
def test_a_folder_of_another_user_gives_no_traceback(open_folder: Path, closed: str) -> None:
    (open_folder / "run" / "events").mkdir(parents=True)
    (open_folder / "run" / "plan.json").touch()
    (open_folder / closed).chmod(0o700)
    done = judged_by_daemon(open_folder / "run")
    assert "Traceback" not in done.stderr
    expected = 2 if closed == "run/events" else 77
    assert done.returncode == expected, done.stdout + done.stderr
    assert expected == 2 or "run this as its owner, or ask for a copy" in done.stderr


@pytest.mark.parametrize(("redirected", "code"), [(">&-", 74), (">/dev/full", 74), ("2>&-", 2)])
def test_an_unwritable_output_gives_an_exit_code_and_no_traceback(
    folder: Path, open_folder: Path, redirected: str, code: int
) -> None:
    shutil.copytree(folder, open_folder / "run")
    (open_folder / "run" / "events").mkdir()
    done = judged_by_daemon(open_folder / "run", redirected)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


def test_an_output_other_than_utf_8_gets_escaped_characters(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = folder.parent / "l\xe4uft"
    shutil.copytree(folder, named)
    (named / "events").mkdir()
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    command = [sys.executable, "-m", "psfleet.evidence", str(named)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "l\\xe4uft" in done.stdout


def test_a_run_is_not_packed_into_itself(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), "--pack", str(folder / "logs" / "run.tar.gz")]) == 64
    assert "name a file outside of it" in capsys.readouterr().err
    assert not list((folder / "logs").iterdir())


def test_no_older_verdict_is_packed_if_the_new_one_cannot_be_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Manifest.of(folder).write(folder)
    (folder / "verdict.json").mkdir()
    (folder / "verdict.json" / "kept").touch()
    assert main([str(folder), "--pack", str(folder.parent / "run.tar.gz")]) == 73
    assert "verdict.json was not written" in capsys.readouterr().err
    assert not (folder.parent / "run.tar.gz").exists()


def test_a_python_that_is_too_old_gives_only_one_message() -> None:
    older = "import sys, runpy; sys.version_info = (3, 10, 9); sys.version = '3.10.9 (main)'"
    command = [sys.executable, "-c", f"{older}; runpy.run_module('psfleet.evidence', run_name='__main__')"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = "psfleet needs Python 3.11 or newer, and this is 3.10.9\n"
    assert (done.returncode, done.stdout, done.stderr) == (69, "", said)
