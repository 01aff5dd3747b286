"""manifest.json: the verdict judges the collected files, also for a stranger with Python alone."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from psfleet.evidence.__main__ import main
from psfleet.evidence.reading import record_settings
from psfleet.evidence.run_manifest import Manifest, pack
from psfleet.evidence.settings import EvidenceSettings
from tests.psfleet.evidence.cases import Case, cases, do
from tests.psfleet.evidence.run_folders import (
    RELEASE,
    RUN_ID,
    detail,
    edit,
    events,
    remove,
    verdict_of,
    write,
)
from tests.repository import ROOT


@pytest.fixture
def collected(run: Path) -> Path:
    """A run's folder with its manifest, and some of the files that others write into it."""
    for name, text in {
        "tasks.json": "[]",
        "logs/ps0.out": "listening\n",
        "logs/worker0.out": "",
        "logs/.hidden": "",
        "checkpoints/model-400.npz": "0",
        "devices/ps0.json": "{}",
        "devices.txt": "ps0\n",
        "state.json": '{"state": "ended"}',
        "summaries/worker0/events.out": "0",
        "report.html": "<html></html>",
    }.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(text)
    Manifest.of(run).write(run)
    return run


def unchanged(run: Path) -> tuple[bool | None, str]:
    verdict = verdict_of(run)
    (found,) = (check for check in verdict.checks if check.check == "files_unchanged")
    return found.ok, found.detail


def test_the_manifest_lists_the_collected_evidence_with_its_hashes_and_sizes(collected: Path) -> None:
    written = (collected / "manifest.json").read_text()
    content = json.loads(written)
    assert written == json.dumps(content, indent=2) + "\n"
    assert (content["version"], content["run_id"]) == (1, RUN_ID)
    assert set(content["files"]) == {
        "plan.json",
        "settings.json",
        "tasks.json",
        "devices.txt",
        "events/ps0.jsonl",
        "events/worker0.jsonl",
        "events/worker1.jsonl",
        "events/evaluator0.jsonl",
        "logs/ps0.out",
        "logs/worker0.out",
        "checkpoints/model-400.npz",
        "devices/ps0.json",
    }
    of_ps = events(collected, "ps0").read_bytes()
    assert content["files"]["events/ps0.jsonl"] == {
        "sha256": hashlib.sha256(of_ps).hexdigest(),
        "bytes": len(of_ps),
    }


def test_an_unchanged_folder_is_proven(collected: Path) -> None:
    verdict = verdict_of(collected)
    assert verdict.exit_code == 0
    assert detail(verdict, "files_unchanged").startswith("12 files of ")


def change_one_byte(run: Path) -> None:
    content = events(run, "worker1").read_text()
    events(run, "worker1").write_text(content.replace(RELEASE, f"{RELEASE[:-1]}2", 1))


def ask_for_less(run: Path) -> None:
    content = json.loads((run / "settings.json").read_text())
    (run / "settings.json").write_text(json.dumps(content | {"evidence": {"minimum_share": 0}}))


def tell(run: Path, /, name: str, **entry: object) -> None:
    """Change the entry of a file in the manifest; the other fields are those of the plan."""
    content = json.loads((run / "manifest.json").read_text())
    content["files"][name] = content["files"]["plan.json"] | entry
    (run / "manifest.json").write_text(json.dumps(content))


def tell_a_size(run: Path, name: str, digits: int) -> None:
    """Claim a size that Python can parse although it cannot print a sum with it."""
    tell(run, name, bytes=int("9" * digits))


def link_to_a_file_elsewhere(run: Path) -> None:
    target = run.parent / "elsewhere"
    (run / "logs/ps0.out").rename(target)
    (run / "logs/ps0.out").symlink_to(target)


def name_a_file_outside(run: Path) -> None:
    shutil.copy(run / "plan.json", run.parent / "secret")
    tell(run, "../secret")


def test_without_a_manifest_it_is_not_shown_that_the_files_are_the_collected_ones(collected: Path) -> None:
    (collected / "manifest.json").unlink()
    verdict = verdict_of(collected)
    assert verdict.verdict == "proven"
    assert verdict.not_shown == (
        "It is not shown that the files are those that were collected: there is no manifest.json.",
    )


def test_a_file_of_another_size_is_not_read(collected: Path) -> None:
    with (collected / "checkpoints" / "model-400.npz").open("wb") as file:
        file.truncate(1 << 40)
    assert unchanged(collected) == (False, "checkpoints/model-400.npz was changed after it was collected")


def tell_another_run(run: Path) -> None:
    content = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(content | {"run_id": "other"}))


def lead_nowhere(run: Path) -> None:
    (run / "manifest.json").unlink()
    (run / "manifest.json").symlink_to(run / "gone")


# What was done to a collected run's folder, by its manifest.
# What was changed is no proof, what lacks leaves the question open.
CASES = {
    "one byte that was changed": Case(
        change_one_byte,
        1,
        "events/worker1.jsonl was changed after it was collected",
        headline="files of the run were changed after they were collected",
    ),
    "settings that ask for less": Case(ask_for_less, 1, "settings.json was changed"),
    "a file that was added": Case(do(write, "logs/worker9.out", ""), 1, "logs/worker9.out was added"),
    "a size that is no file's": Case(
        do(tell_a_size, "events/ps0.jsonl", digits=4300),
        2,
        "manifest.json: files['events/ps0.jsonl'].bytes is 99999999999999999999999",
    ),
    "a checkpoint that is gone": Case(
        do(remove, "checkpoints/model-400.npz"), 2, "checkpoints/model-400.npz is gone"
    ),
    "a link to a file elsewhere": Case(link_to_a_file_elsewhere, 2, "logs/ps0.out is gone"),
    "a hash that is none": Case(
        do(tell, "plan.json", sha256="AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
        2,
        "; expected a hash of 64 hex digits",
    ),
    "a file outside": Case(name_a_file_outside, 2, "../secret is gone"),
    "no JSON": Case(
        do(write, "manifest.json", "{"),
        2,
        "\nmanifest.json: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)\n",
    ),
    "another version": Case(
        do(write, "manifest.json", '{"version": 2}'), 2, "\nmanifest.json: it is not an object of version 1\n"
    ),
    "no files": Case(
        do(write, "manifest.json", '{"version": 1, "run_id": "test"}'),
        2,
        "\nmanifest.json: files is missing\n",
    ),
    "a name without end": Case(
        do(
            write,
            "manifest.json",
            '{"version": 1, "run_id": "test", "files": '
            '{"../aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggghhhhh'
            'hhhhh": "x"}}',
        ),
        2,
        "\nmanifest.json: "
        "files['../aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggg"
        "hhhhhhhhhh'] is 'x'; expected an object\n",
    ),
    "that of another run": Case(
        tell_another_run, 1, "manifest.json is of run 'other', the records are of 'test'"
    ),
    "a link that leads nowhere": Case(lead_nowhere, 2, "\nmanifest.json: No such file or directory\n"),
}


@cases(files_unchanged=CASES)
def test_changed_and_missing_files_are_named(collected: Path, case: Case) -> None:
    case.hold(collected)


def test_thresholds_noted_by_the_first_verdict_are_no_change(collected: Path) -> None:
    record_settings(collected, EvidenceSettings())
    assert "evidence" in json.loads((collected / "settings.json").read_text())
    assert unchanged(collected)[0] is True


def test_a_note_does_not_hide_that_the_settings_were_added(collected: Path) -> None:
    kept = (collected / "settings.json").read_text()
    (collected / "settings.json").unlink()
    Manifest.of(collected).write(collected)
    (collected / "settings.json").write_text(kept)
    record_settings(collected, EvidenceSettings())
    assert unchanged(collected) == (False, "settings.json was added")


def test_a_note_does_not_hide_that_the_settings_were_changed_before(collected: Path) -> None:
    content = json.loads((collected / "settings.json").read_text())
    content["training"]["steps"] = 1
    (collected / "settings.json").write_text(json.dumps(content))
    record_settings(collected, EvidenceSettings())
    assert unchanged(collected)[0] is False


def stranger(place: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Judge with only the three packages and the folder: without installed packages or Ansible."""
    for package in ("psfleet", "trainer", "plugins"):
        shutil.copytree(ROOT / package, place / package, dirs_exist_ok=True)
    program = [sys.executable, "-S", "-m", "psfleet.evidence", str(folder), *arguments]
    environment = {"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(program, cwd=place, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_stranger_gets_the_same_verdict_and_detects_one_changed_byte(
    collected: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "run.tar.gz"
    assert main([str(collected), "--pack", str(archive)]) == 0
    ours = json.loads((collected / "verdict.json").read_text())
    place = tmp_path / "stranger"
    place.mkdir()
    subprocess.run(["tar", "xzf", str(archive)], cwd=place, check=True)
    done = stranger(place, place / RUN_ID, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ours
    assert ours["verdict"] == "proven"

    change_one_byte(place / RUN_ID)
    done = stranger(place, place / RUN_ID)
    assert done.returncode == 1
    assert "FAILED  files unchanged         events/worker1.jsonl was changed after it was" in done.stdout


def test_the_same_files_give_the_same_archive_at_any_time_for_any_user(
    collected: Path, tmp_path: Path
) -> None:
    again = Path(shutil.copytree(collected, tmp_path / "copy" / RUN_ID))
    os.utime(events(again, "ps0"), (1, 1))
    events(again, "ps0").chmod(0o600)
    names = pack(collected, tmp_path / "a.tar.gz")
    assert pack(again, tmp_path / "b.tar.gz") == names
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    assert (tmp_path / "a.tar.gz").read_bytes()[3:8] == bytes(5)  # no name and no time in gzip's header
    assert {"manifest.json", "report.html"} <= set(names)
    assert not {"state.json", "summaries/worker0/events.out"} & set(names)
    with tarfile.open(tmp_path / "a.tar.gz") as packed:
        entries = packed.getmembers()
        contents = [packed.extractfile(entry) for entry in entries]
        assert [one and one.read() for one in contents] == [(collected / name).read_bytes() for name in names]
    assert {(entry.mtime, entry.uid, entry.gid, entry.uname, entry.mode) for entry in entries} == {
        (0, 0, 0, "", 0o644)
    }


def test_packing_does_not_replace_a_file(
    collected: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(collected), "--pack", str(tmp_path / "new.tar.gz")]) == 0
    there = tmp_path / "there.tar.gz"
    there.write_text("mine")
    assert main([str(collected), "--pack", str(there)]) == 73
    assert there.read_text() == "mine"
    assert f"{there} is there already: remove it, or name another file" in capsys.readouterr().err
    assert main([str(collected), "--pack", str(tmp_path / "absent/x.tar.gz")]) == 73
    assert "absent/x.tar.gz was not written: No such file or directory" in capsys.readouterr().err


def test_a_run_that_was_never_collected_is_not_packed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run), "--pack", str(tmp_path / "x.tar.gz")]) == 66
    assert capsys.readouterr().err == (
        f"{run} has no manifest.json, which train.yml and stop.yml write when they collect a run:"
        " without it the files cannot be compared with what was collected\n"
    )
    assert not (tmp_path / "x.tar.gz").exists()


def test_a_run_that_is_not_proven_is_packed_with_exit_code_1(collected: Path, tmp_path: Path) -> None:
    edit(collected, "worker1", "finished", fingerprint="0" * 16)
    assert main([str(collected), "--pack", str(tmp_path / "x.tar.gz")]) == 1
    assert (tmp_path / "x.tar.gz").exists()
