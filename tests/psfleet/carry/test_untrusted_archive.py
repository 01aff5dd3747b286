"""No archive takes more than fixed memory and time, and good archives are read as `tarfile` reads them."""

import gzip
import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import IO

import pytest

from psfleet.carry.untrusted_archive import ArchiveError, members
from tests.psfleet.carry.hostile_archives import FILE, KINDS, NAME, compressed, member, pax, record
from tests.repository import ROOT

FORMS = {"pax": tarfile.PAX_FORMAT, "gnu": tarfile.GNU_FORMAT, "ustar": tarfile.USTAR_FORMAT}
NAMES = ["plain", "x" * 90, f"{'d' * 120}/{'x' * 90}", f"{'d/' * 60}{'x' * 50}"]
LONG_NAMES = [f"{'x' * 200}/{'y' * 200}", "größe/日本", "e" * 101]


@pytest.mark.parametrize("kind", KINDS)
def test_no_archive_takes_much_memory_or_time(tmp_path: Path, kind: str) -> None:
    make, says = KINDS[kind]
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(compressed(make()))
    command = [sys.executable, "-m", "tests.psfleet.carry.hostile_archives", str(archive), str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env={"TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-1000:]
    said = done.stdout.splitlines()
    assert len(said) == 2
    assert all(says in each for each in said), said
    assert not list(tmp_path.glob("psfleet-run-*"))


def by_tarfile(path: Path) -> list[tuple[object, ...]]:
    """Return what `tarfile` finds in a good archive."""
    with tarfile.open(path) as archive:
        return [
            (
                member.name,
                member.type,
                member.linkname,
                file.read() if (file := content(archive, member)) else b"",
            )
            for member in archive
        ]


def content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes] | None:
    return archive.extractfile(member) if member.isfile() else None


def by_members(path: Path) -> list[tuple[object, ...]]:
    with path.open("rb") as file:
        return [
            (member.name, member.type, member.linkname, content.read())
            for member, content in members(file, 1000)
        ]


@pytest.mark.parametrize("form", FORMS)
def test_a_good_archive_is_read_as_tarfile_reads_it(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz", format=FORMS[form]) as archive:
        for number, name in enumerate(NAMES if form == "ustar" else [*NAMES, *LONG_NAMES]):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = 511 + number, 1.5e9 + 0.25 if form == "pax" else 1_500_000_000
            archive.addfile(member, io.BytesIO(bytes([number]) * member.size))
            twin = tarfile.TarInfo(f"{number}")
            twin.type, twin.linkname = tarfile.LNKTYPE, name[:100] if form == "ustar" else name
            archive.addfile(twin)
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    assert by_members(path) == by_tarfile(path)
    assert len(by_members(path)) > 8


@pytest.mark.parametrize("form", ["gnu", "pax", "ustar", "v7"])
def test_an_archive_of_gnu_tar_is_read_as_tarfile_reads_it(tmp_path: Path, form: str) -> None:
    place, path = tmp_path / "run", tmp_path / "a.tar.gz"
    names = NAMES[:1] if form == "v7" else NAMES[:2] if form == "ustar" else [*NAMES[:3], *LONG_NAMES]
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(name * 300)
    (place / "further").hardlink_to(place / "plain")
    (place / "link").symlink_to("plain")
    subprocess.run(["tar", f"--format={form}", "-C", str(tmp_path), "-czf", str(path), "run"], check=True)
    assert by_members(path) == by_tarfile(path)
    assert len(by_members(path)) > 3


def test_a_record_of_a_size_counts_instead_of_that_of_the_header(tmp_path: Path) -> None:
    """Files of more than 8 GiB have such a record."""
    path = tmp_path / "a.tar.gz"
    second = member(tarfile.REGTYPE, name="second")
    path.write_bytes(
        compressed(pax(record("size", "600")) + member(tarfile.REGTYPE, size=0) + bytes(1024) + second)
    )
    assert [(name, len(found)) for name, _, _, found in by_members(path)] == [(NAME, 600), ("second", 0)]  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [0, 1, 30, 100, 600, 1000])
def test_a_cut_archive_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(FILE + FILE + bytes(1024), 0)[:length])
    with pytest.raises(ArchiveError):
        by_members(path)


def test_a_piece_of_a_content_can_be_read_and_the_rest_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(compressed(member(tarfile.REGTYPE, b"abc" * 100_000) + FILE))
    with path.open("rb") as file:
        found = [(entry.size, content.read(4)) for entry, content in members(file, 10)]
    assert found == [(300_000, b"abca"), (1, b"x")]
