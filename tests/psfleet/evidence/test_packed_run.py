"""A packed run gets the same verdict; other archives are refused and leave nothing behind."""

import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from psfleet.evidence import packed_run
from psfleet.evidence.__main__ import main
from psfleet.evidence.run_manifest import Manifest, pack
from tests.psfleet.evidence.run_folders import verdict_of


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where archives are unpacked."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def test_a_packed_run_gets_the_verdict_of_its_folder_and_stays_unchanged(
    run: Path, tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Manifest.of(run).write(run)
    archive = tmp_path / "healthy.tar.gz"
    pack(run, archive)
    before = archive.read_bytes()
    assert main([str(archive), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(verdict_of(run).as_json()))
    assert (archive.read_bytes(), list(temporary.iterdir())) == (before, [])
    assert main([str(archive), "--pack", str(tmp_path / "again.tar.gz")]) == 64


def test_invalid_thresholds_of_a_packed_run_are_reported_as_for_a_folder(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "settings.json").write_text('{"training": {}, "evidence": {"minimum_share": "much"}}')
    pack(run, tmp_path / "odd.tar.gz")
    told = []
    for given in (run, tmp_path / "odd.tar.gz"):
        assert main([str(given)]) == 2
        told.append(capsys.readouterr().err.partition("settings.json")[2])
    assert told[0] == told[1]
    assert "minimum_share" in told[0]


def entry(name: str, **fields: object) -> tarfile.TarInfo:
    one = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(one, field, value)
    return one


def tar_of(*entries: tarfile.TarInfo) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for one in entries:
            archive.addfile(one, io.BytesIO(b"x" * one.size))
    return file.getvalue()


def long_header() -> bytes:
    """Return an extended header that claims 9 GB."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 9_000_000_000
    return header.tobuf(tarfile.GNU_FORMAT)


PLAN = entry("r/plan.json")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: tar_of(PLAN, entry("r/../../out")), "'r/../../out', which is not a plain file"),
        (lambda: tar_of(PLAN, entry("/tmp/out/x")), "'/tmp/out/x', which is not a plain file"),
        (lambda: tar_of(PLAN, entry("r/logs", type=tarfile.SYMTYPE, linkname="/etc")), "not a plain file"),
        (
            lambda: tar_of(PLAN, entry("r/x", type=tarfile.LNKTYPE, linkname="r/plan.json")),
            "not a plain file",
        ),
        (lambda: tar_of(PLAN, entry("r/pipe", type=tarfile.FIFOTYPE)), "not a plain file"),
        (lambda: tar_of(PLAN, entry("loose")), "'loose', which is not a plain file"),
        (lambda: tar_of(PLAN, entry("other/plan.json")), "it holds 2 folders, expected that of one run"),
        (tar_of, "it holds 0 folders"),
        (lambda: tar_of(PLAN, PLAN), "File exists"),
        (lambda: tar_of(entry("r/big", size=5000))[:2000], "it is not a complete .tar.gz"),
        (long_header, "a header of 9,000,000,000 bytes"),
    ],
)
def test_an_archive_that_is_no_packed_run_is_refused(
    tmp_path: Path,
    temporary: Path,
    capsys: pytest.CaptureFixture[str],
    made: Callable[[], bytes],
    says: str,
) -> None:
    archive = tmp_path / "strange.tar.gz"
    archive.write_bytes(gzip.compress(made()))
    assert main([str(archive)]) in {66, 74}
    said = capsys.readouterr()
    assert (says in said.err, said.err.count("\n"), said.out) == (True, 1, ""), said.err
    assert not list(temporary.iterdir())
    assert not (tmp_path / "out").exists()


def test_the_unpacked_size_is_limited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "large.tar.gz"
    archive.write_bytes(gzip.compress(tar_of(entry("r/events/worker0.jsonl", size=5000))))
    monkeypatch.setattr(packed_run, "_MOST_OF_THE_FREE", 1e-12)
    assert main([str(archive)]) == 66
    assert "has no space for it: unpack it elsewhere" in capsys.readouterr().err
