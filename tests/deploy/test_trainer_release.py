import importlib
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from plugins.action.trainer_release import pack
from plugins.module_utils.content_directory import content_hash, points_to

Releases: Any = importlib.import_module("plugins.modules.trainer_release").Releases


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source" / "trainer"
    (folder / "models").mkdir(parents=True)
    (folder / "__main__.py").write_text("print('hello')\n")
    (folder / "models" / "linear.py").write_text("W = 2\n")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_bytes(b"junk")
    return folder


def deploy(source: Path, host: Path, keep: int = 3) -> str:
    release = content_hash(source)
    archive = host.parent / "release.tar"
    pack(source, archive)
    releases = Releases(host, release, processes=host.parent / "proc")
    if not releases.is_present():
        releases.unpack(archive)
    releases.make_current()
    for path in releases.prunable(keep):
        path.rename(host.parent / f"pruned-{path.name}")
    return release


def test_the_hash_is_of_names_and_bytes_alone(source: Path) -> None:
    before = content_hash(source)
    (source / "__pycache__" / "y.pyc").write_bytes(b"more")
    (source / "tests").mkdir()
    (source / "tests" / "test_x.py").write_text("")
    os.utime(source / "__main__.py", (1, 1))
    assert content_hash(source) == before
    (source / "models" / "linear.py").rename(source / "models" / "linear2.py")
    renamed = content_hash(source)
    (source / "models" / "linear2.py").write_text("W = 3\n")
    assert len({before, renamed, content_hash(source)}) == 3


def test_a_release_is_unpacked_and_becomes_current(source: Path, tmp_path: Path) -> None:
    host = tmp_path / "host"
    release = deploy(source, host)
    assert points_to(host / "current", f"releases/{release}")
    assert (host / "current" / "trainer" / "__main__.py").read_text() == "print('hello')\n"
    assert not (host / "current" / "trainer" / "__pycache__").exists()
    everything = [host / "releases" / release, *(host / "releases" / release).rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in everything} == {0o755, 0o644}


def test_a_release_that_was_changed_on_the_host_is_put_right(source: Path, tmp_path: Path) -> None:
    host = tmp_path / "host"
    release = deploy(source, host)
    (host / "current" / "trainer" / "__main__.py").write_text("raise SystemExit\n")
    (host / "releases" / ".partial-left-by-a-kill").mkdir()
    assert deploy(source, host) == release
    assert content_hash(host / "current" / "trainer") == release
    assert sorted(path.name for path in (host / "releases").iterdir()) == sorted([".lock", release])


def test_another_archive_than_the_release_is_refused(source: Path, tmp_path: Path) -> None:
    host = tmp_path / "host"
    archive = tmp_path / "release.tar"
    pack(source, archive)
    releases = Releases(host, "0" * 12)
    with pytest.raises(ValueError, match=f"holds the release {content_hash(source)}; expected 000000000000"):
        releases.unpack(archive)
    assert [path.name for path in (host / "releases").iterdir()] == [".lock"]
    assert not (host / "current").exists()


@pytest.mark.parametrize("name", ["../outside", "/outside"])
def test_an_archive_cannot_write_beside_its_place(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "release.tar"
    (tmp_path / "content").write_text("x")
    with tarfile.open(archive, "w") as stream:
        member = stream.gettarinfo(tmp_path / "content")
        member.name = name
        with (tmp_path / "content").open("rb") as content:
            stream.addfile(member, content)
    with pytest.raises(ValueError, match="outside"):
        Releases(tmp_path / "host", "0" * 12).unpack(archive)


def test_the_newest_releases_stay_and_one_in_use_in_any_case(source: Path, tmp_path: Path) -> None:
    host = tmp_path / "host"
    releases = []
    for number in range(6):
        (source / "models" / "linear.py").write_text(f"W = {number}\n")
        releases.append(deploy(source, host, keep=3))
        os.utime(host / "releases" / releases[-1], (number, number))
        if number == 1:
            process = tmp_path / "proc" / "123"
            process.mkdir(parents=True)
            (process / "cwd").symlink_to(host / "releases" / releases[1])
    kept = {path.name for path in (host / "releases").iterdir()} - {".lock"}
    assert kept == {releases[1], *releases[3:]}


def test_going_back_to_an_older_release_carries_nothing(source: Path, tmp_path: Path) -> None:
    host = tmp_path / "host"
    first = deploy(source, host)
    original = (source / "models" / "linear.py").read_text()
    (source / "models" / "linear.py").write_text("W = 9\n")
    deploy(source, host)
    (source / "models" / "linear.py").write_text(original)
    assert Releases(host, first).is_present()
    assert deploy(source, host) == first
    assert points_to(host / "current", f"releases/{first}")
