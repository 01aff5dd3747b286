import os
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from plugins.action.content_release import ActionModule, pack
from plugins.module_utils.content_directory import content_hash, points_to
from plugins.module_utils.private_files import make_paths_private
from plugins.module_utils.releases import Release


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source" / "trainer"
    (folder / "models").mkdir(parents=True)
    (folder / "__main__.py").write_text("print('hello')\n")
    (folder / "models" / "linear.py").write_text("W = 2\n")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_bytes(b"junk")
    return folder


def deployed(source: Path, host: Path, package: str = "", **others: Any) -> Any:  # noqa: ANN401
    """Put a release in place and use it, as the action and the module do; return it."""
    release = Release(host / "releases", content_hash(source), package, **others)
    archive = host.parent / "release.tar"
    pack(source, archive, package)
    if not release.is_present():
        release.unpack(archive)
    release.use()
    return release


def deploy(source: Path, host: Path) -> str:
    return str(deployed(source, host, "trainer", link=host / "current").name)


def test_a_release_is_unpacked_and_becomes_current(source: Path, tmp_path: Path) -> None:
    host = tmp_path / "host"
    release = deploy(source, host)
    assert points_to(host / "current", f"releases/{release}")
    assert (host / "current" / "trainer" / "__main__.py").read_text() == "print('hello')\n"
    assert not (host / "current" / "trainer" / "__pycache__").exists()
    everything = [host / "releases" / release, *(host / "releases" / release).rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in everything} == {0o755, 0o644}


def test_a_release_of_a_user_is_for_the_group_alone_and_its_programs_stay_executable(
    source: Path, tmp_path: Path
) -> None:
    group = 65534 if os.geteuid() == 0 else os.getegid()
    (source / "tool.sh").write_text("#!/bin/sh\n")
    (source / "tool.sh").chmod(0o700)
    release = deployed(source, tmp_path / "host", group=group)

    def modes() -> dict[str, int]:
        paths = [release.folder, release.place, *release.place.rglob("*")]
        assert {path.stat().st_gid for path in paths} == {group}
        return {path.name: path.stat().st_mode & 0o7777 for path in paths}

    private = modes()
    assert private["tool.sh"] == private["releases"] == private[release.name] == private["models"] == 0o750
    assert private["__main__.py"] == private["linear.py"] == 0o640
    assert release.public_paths() == []
    for path in (release.folder, release.place, *release.place.rglob("*")):  # as earlier versions of psfleet
        os.chown(path, -1, os.getegid())
        path.chmod(0o755 if path.is_dir() or path.name == "tool.sh" else 0o644)
    make_paths_private(release.public_paths(), group)
    assert modes() == private
    assert release.public_paths() == []


def test_a_release_that_was_changed_on_the_host_is_restored(source: Path, tmp_path: Path) -> None:
    host = tmp_path / "host"
    release = deploy(source, host)
    (host / "current" / "trainer" / "__main__.py").write_text("raise SystemExit\n")
    (host / "releases" / ".partial-left-by-a-kill").mkdir()
    assert deploy(source, host) == release
    assert content_hash(host / "current" / "trainer") == release
    assert sorted(path.name for path in (host / "releases").iterdir()) == sorted([".lock", release])


def test_an_archive_of_another_release_is_refused(source: Path, tmp_path: Path) -> None:
    host = tmp_path / "host"
    archive = tmp_path / "release.tar"
    pack(source, archive, "trainer")
    release = Release(host / "releases", "0" * 12, package="trainer", link=host / "current")
    with pytest.raises(ValueError, match=f"holds the release {content_hash(source)}; expected 000000000000"):
        release.unpack(archive)
    assert [path.name for path in (host / "releases").iterdir()] == [".lock"]
    assert not (host / "current").exists()


def test_going_back_to_an_older_release_carries_nothing(source: Path, tmp_path: Path) -> None:
    host = tmp_path / "host"
    first = deploy(source, host)
    original = (source / "models" / "linear.py").read_text()
    (source / "models" / "linear.py").write_text("W = 9\n")
    deploy(source, host)
    (source / "models" / "linear.py").write_text(original)
    assert Release(host / "releases", content_hash(source), "trainer").is_present()
    assert deploy(source, host) == first
    assert points_to(host / "current", f"releases/{first}")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "own" / "train.py"
    file.parent.mkdir()
    file.write_text("print('mine')\n")
    return file


def test_a_single_file_is_deployed_as_a_program_under_its_own_name(script: Path, tmp_path: Path) -> None:
    (script.parent / "notes.txt").write_text("beside it")
    release = deployed(script, tmp_path / "host")
    assert [path.name for path in release.place.iterdir()] == ["train.py"]
    assert release.is_present()
    assert release.is_current()
    (script.parent / "notes.txt").unlink()
    assert content_hash(script) == content_hash(script.parent) == release.name


def test_a_link_to_a_file_is_carried_as_the_file(script: Path, tmp_path: Path) -> None:
    (tmp_path / "shared.py").write_text("X = 1\n")
    (script.parent / "shared.py").symlink_to(tmp_path / "shared.py")
    release = deployed(script.parent, tmp_path / "host")
    assert not (release.place / "shared.py").is_symlink()
    assert (release.place / "shared.py").read_text() == "X = 1\n"


def test_a_release_needs_a_source_and_what_is_not_needed_has_none(source: Path) -> None:
    action = ActionModule.__new__(ActionModule)
    sent = action._for_host({"source": str(source), "folder": "/opt"})
    assert sent == {"folder": "/opt", "release": content_hash(source)}
    assert action._for_host({"source": "x", "state": "pruned"}) == {"source": "x", "state": "pruned"}
    with pytest.raises(AnsibleActionFail, match="source is missing"):
        action._for_host({"folder": "/opt"})
