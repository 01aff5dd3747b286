"""The controller's files in a directory of a host: which are copied, which stay, which are refused."""

import hashlib
import io
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.carried_record import PARTIAL
from plugins.module_utils.host.safe_directory import opened
from plugins.modules import carried_files as module
from psfleet.carry.carried_manifest import (
    batches,
    find_files,
    manifest_bytes,
    manifest_path,
    pack,
    read_manifest,
    write_manifest,
)
from tests.psfleet.carry.long_steps import report_at_the_end

LIMIT = 1000
# Another group than root's: that of nobody's processes on Debian.
GROUP = 65534 if os.geteuid() == 0 else os.getegid()


class Setup:
    """A source on the controller and a directory on a host, with the steps of the action between them."""

    def __init__(self, directory: Path) -> None:
        """Make the source."""
        self.source = directory / "source"
        self.target = directory / "host" / "data"
        self.records = directory / "host" / "records"
        self.cache = directory / "cache"
        self.archive = directory / "parts.tar"
        self.largest = 0
        (self.source / "images").mkdir(parents=True)
        (self.source / "images" / "a.bin").write_bytes(os.urandom(2500))
        (self.source / "images" / "empty").write_bytes(b"")
        (self.source / "labels.txt").write_text("cat\ndog\n")

    @property
    def index(self) -> Path:
        """Where the controller keeps its manifest."""
        return manifest_path({"": self.source}, self.cache)

    def compare(self) -> tuple[Any, dict[str, Any], list[str]]:
        """Return the host's files, the wanted files, and the names of the missing ones."""
        files = write_manifest({"": self.source}, self.index, lambda _: None)
        content = manifest_bytes(files)
        manifest = self.archive.with_suffix(".json")
        manifest.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        host = module.CarriedFiles(self.target, self.records, digest, GROUP)
        wanted = module.read_manifest(manifest, digest)
        return host, wanted, host.compare(wanted)

    def carry(self) -> tuple[list[str], list[str]]:
        """Return the names of the carried and the removed files."""
        host, wanted, lacking = self.compare()
        removed = host.remove_carried([name for name in host.files if name not in wanted])
        host.make_files_private(host.public_files())
        host.finish(wanted)
        for parts in self.batches(lacking):
            pack(parts, self.archive)
            self.largest = max(self.largest, sum(part.size for part in parts))
            again = module.CarriedFiles(self.target, self.records, host.digest, GROUP)
            again.receive(self.archive, wanted)
            again.finish(wanted)
        return lacking, removed

    def batches(self, lacking: list[str]) -> list[Any]:
        """Return the parts of these files, archive by archive."""
        files = read_manifest(self.index)
        return [*batches(files, [list(files).index(name) for name in lacking], LIMIT)]

    def is_fulfilled(self) -> bool:
        """Return whether the host has all files, without a manifest."""
        digest = hashlib.sha256(manifest_bytes(read_manifest(self.index))).hexdigest()
        return bool(module.CarriedFiles(self.target, self.records, digest, GROUP).is_fulfilled())


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_files_arrive_whole_in_bounded_archives_for_their_group_alone(setup: Setup) -> None:
    assert setup.carry() == (["images/a.bin", "images/empty", "labels.txt"], [])
    assert content_of(setup.target) == content_of(setup.source)
    assert setup.largest == LIMIT
    assert modes_and_groups(setup.target) == {(0o750, GROUP), (0o640, GROUP)}
    (record,) = setup.records.glob("*.json")
    assert record.stat().st_mode & 0o777 == 0o600, "it has the names"
    assert setup.index.parent.stat().st_mode & 0o777 == 0o700, "it has the names, too"
    assert setup.is_fulfilled()
    assert setup.carry() == ([], [])


def modes_and_groups(folder: Path) -> set[tuple[int, int]]:
    found = [path.stat() for path in [folder, *folder.rglob("*")]]
    return {(each.st_mode & 0o7777, each.st_gid) for each in found}


def test_files_that_an_earlier_release_left_readable_by_all_are_hidden_once(setup: Setup) -> None:
    setup.carry()
    for path in [setup.target, *setup.target.rglob("*")]:
        os.chown(path, -1, os.getegid())
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert not setup.is_fulfilled()
    assert setup.carry() == ([], []), "nothing is sent"
    assert modes_and_groups(setup.target) == {(0o750, GROUP), (0o640, GROUP)}
    assert setup.is_fulfilled()


def test_folders_with_files_of_others_and_these_files_stay_readable(setup: Setup) -> None:
    setup.carry()
    (setup.target / "images" / "theirs").write_text("x")
    (setup.target / "images" / "theirs").chmod(0o644)
    for path in (setup.target, setup.target / "images"):
        path.chmod(0o755)
    (setup.target / "images" / "a.bin").chmod(0o644)
    setup.carry()
    modes = {path.name: path.stat().st_mode & 0o777 for path in (setup.target / "images").iterdir()}
    assert modes == {"a.bin": 0o640, "empty": 0o640, "theirs": 0o644}
    for path in (setup.target, setup.target / "images"):
        assert path.stat().st_mode & 0o777 == 0o755


def test_only_changed_files_are_carried_and_files_that_left_the_source_are_removed(setup: Setup) -> None:
    setup.carry()
    (setup.source / "labels.txt").write_text("cat\ncow\n")
    (setup.source / "images" / "a.bin").unlink()
    (setup.source / "images" / "empty").unlink()
    (setup.source / "images").rmdir()
    assert setup.carry() == (["labels.txt"], ["images/a.bin", "images/empty"])
    assert content_of(setup.target) == {"labels.txt": b"cat\ncow\n"}
    assert [path.name for path in setup.target.iterdir()] == ["labels.txt"]


def test_a_file_may_replace_a_folder_and_a_folder_a_file(setup: Setup) -> None:
    setup.carry()
    for path in (setup.source / "images").iterdir():
        path.unlink()
    (setup.source / "images").rmdir()
    (setup.source / "images").write_text("none")
    setup.carry()
    assert (setup.target / "images").read_text() == "none"
    (setup.source / "images").unlink()
    (setup.source / "images").mkdir()
    (setup.source / "images" / "b").write_text("b")
    setup.carry()
    assert content_of(setup.target) == content_of(setup.source)


def test_a_file_that_was_changed_on_the_host_is_restored(setup: Setup) -> None:
    setup.carry()
    (setup.target / "labels.txt").write_text("cat\ncow\n")
    (setup.target / "images" / "empty").unlink()
    assert not setup.is_fulfilled()
    assert setup.carry() == (["images/empty", "labels.txt"], [])
    assert content_of(setup.target) == content_of(setup.source)


def test_a_file_with_only_a_changed_time_is_hashed_and_not_carried(setup: Setup) -> None:
    setup.carry()
    os.utime(setup.target / "labels.txt", (1, 1))
    assert not setup.is_fulfilled()
    assert setup.carry() == ([], [])
    assert setup.is_fulfilled()


def test_files_of_other_users_are_kept(setup: Setup) -> None:
    (setup.target / "theirs").mkdir(parents=True)
    (setup.target / "theirs" / "x").write_text("x")
    (setup.target / "labels.txt").write_text("cat\ndog\n")
    assert setup.carry()[0] == ["images/a.bin", "images/empty"]
    for path in setup.source.rglob("*.*"):
        path.unlink()
    assert setup.carry()[1] == ["images/a.bin"]
    # The file that existed before the carrying is kept, also after it left the source.
    assert set(content_of(setup.target)) == {"theirs/x", "labels.txt", "images/empty"}


def test_a_carried_file_that_somebody_replaced_is_not_removed(setup: Setup) -> None:
    setup.carry()
    (setup.target / "labels.txt").write_text("my own labels")
    (setup.source / "labels.txt").unlink()
    assert setup.carry() == ([], [])
    assert (setup.target / "labels.txt").read_text() == "my own labels"


def test_a_foreign_file_at_the_target_is_refused_and_kept(setup: Setup) -> None:
    setup.target.mkdir(parents=True)
    (setup.target / "labels.txt").write_text("fish")
    with pytest.raises(ValueError, match=r"1 files are in the way.*labels\.txt.*trainer_data_dir"):
        setup.carry()
    assert content_of(setup.target) == {"labels.txt": b"fish"}


def test_a_file_that_arrives_damaged_does_not_replace_the_old_one(setup: Setup) -> None:
    setup.carry()
    before = content_of(setup.target)
    (setup.source / "labels.txt").write_text("new!\nnew\n")
    host, wanted, lacking = setup.compare()
    (setup.source / "labels.txt").write_text("newer\none")
    (parts,) = setup.batches(lacking)
    pack(parts, setup.archive)
    with pytest.raises(ValueError, match=r"labels\.txt was changed on the controller or damaged"):
        host.receive(setup.archive, wanted)
    assert content_of(setup.target) == before


def test_an_interrupted_transfer_continues_with_the_missing_files(setup: Setup) -> None:
    host, wanted, lacking = setup.compare()
    pack(setup.batches(lacking)[0], setup.archive)  # with a part of images/a.bin alone
    host.receive(setup.archive, wanted)
    host.finish(wanted)
    assert not setup.is_fulfilled()
    assert setup.carry()[0] == lacking
    assert content_of(setup.target) == content_of(setup.source)


@pytest.mark.parametrize("place", ["images", "."])
def test_a_link_of_another_user_is_not_followed(setup: Setup, tmp_path: Path, place: str) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    setup.target.parent.mkdir(exist_ok=True)
    if place != ".":
        setup.target.mkdir()
    setup.target.parent.chmod(0o777)  # everybody may put a link here
    (setup.target / place).symlink_to(precious)
    with pytest.raises(ValueError, match="not a directory, or a link that is not root's"):
        setup.carry()
    assert list(precious.iterdir()) == []


@pytest.mark.parametrize("kind", ["fifo", "hard link"])
def test_a_fifo_or_hard_link_in_place_of_a_file_is_neither_read_nor_written(
    tmp_path: Path, kind: str
) -> None:
    precious, partial = tmp_path / "precious", tmp_path / PARTIAL
    precious.write_text("12345")
    if kind == "fifo":
        os.mkfifo(partial)
    else:
        os.link(precious, partial)
    # A process holds the FIFO open at both ends, so that opening it does not block.
    feed = ["sh", "-c", 'exec 3<>"$0"; exec yes >&3', str(partial)]
    feeding = subprocess.Popen(feed) if kind == "fifo" else None
    with opened(tmp_path) as folder:
        with pytest.raises((OSError, ValueError), match=r"does not follow|No such device"):
            module.append(folder, io.BytesIO(b"6"), 5)
        if feeding:
            with pytest.raises(ValueError, match="is no longer a file"):
                module.sha256_of(folder, PARTIAL)
            feeding.kill()
            feeding.wait()
    assert precious.read_text() == "12345"


def test_a_link_of_the_administrator_is_followed(setup: Setup, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    setup.target.parent.mkdir()
    setup.target.symlink_to(tmp_path / "disk")
    tmp_path.chmod(0o755)
    setup.carry()
    assert content_of(tmp_path / "disk") == content_of(setup.source)


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside"])
def test_a_manifest_cannot_lead_out_of_the_directory(setup: Setup, name: str) -> None:
    setup.target.mkdir(parents=True)
    host = module.CarriedFiles(setup.target, setup.records, "0", GROUP)
    with pytest.raises(ValueError, match="no path below a directory"):
        host.compare({name: module.Wanted(0, "0")})


def test_only_files_with_a_changed_size_or_time_are_read_again(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_manifest({"": setup.source}, setup.index, lambda _: None)
    read: list[str] = []

    def file_sha256(path: Path) -> str:
        read.append(path.name)
        return "0" * 64

    monkeypatch.setattr("psfleet.carry.carried_manifest.file_sha256", file_sha256)
    (setup.source / "labels.txt").write_text("another size")
    write_manifest({"": setup.source}, setup.index, lambda _: None)
    assert read == ["labels.txt"]


def test_the_amount_of_data_read_is_reported(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("psfleet.carry.carried_manifest.report_progress", report_at_the_end)
    monkeypatch.setattr("psfleet.carry.carried_manifest.MEGABYTE", 1)
    write_manifest({"": setup.source}, setup.index, said.append)
    assert said == ["2508 MB read each 5 s"]


def test_sources_are_placed_below_their_paths_and_a_file_keeps_its_name(setup: Setup) -> None:
    found = find_files({"one": setup.source / "images", "two/x": setup.source / "labels.txt"})
    assert list(found) == ["one/a.bin", "one/empty", "two/x/labels.txt"]
    with pytest.raises(FileNotFoundError, match="there is no"):
        find_files({"": setup.source / "nothing"})
