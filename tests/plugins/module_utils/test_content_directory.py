import io
import os
import re
import tarfile
import tempfile
import threading
import time
from pathlib import Path

import pytest

from plugins.module_utils import content_directory as content
from plugins.module_utils.content_directory import content_hash, files_below, locked, point

LOCK = "requirements.cpu-python3.11-x86_64.psfleet.lock"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "program"
    for name in (
        "models/linear.py",
        ".git/HEAD",
        "main.py",
        "__pycache__/main.pyc",
        ".hidden",
        "models/cnn.py",
        LOCK,
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n")
    os.mkfifo(folder / "fifo")
    (folder / "link.py").symlink_to("main.py")
    return folder


def test_the_content_hash_of_a_program_depends_only_on_names_and_bytes(program: Path) -> None:
    names = ["link.py", "main.py", "models/cnn.py", "models/linear.py"]
    assert [*content.content_files(program).items()] == [(name, program / name) for name in names]
    left_out = {".git/HEAD", ".hidden", "__pycache__/main.pyc", LOCK}
    assert {*files_below(program)} == {*names, *left_out}
    # Releases on hosts are compared by this hash, so its computation must not change unnoticed.
    assert content_hash(program) == "d286a2555012"
    (program / ".git" / "HEAD").write_text("more")
    os.utime(program / "main.py", (1, 1))
    assert content_hash(program) == "d286a2555012"
    (program / "models" / "cnn.py").rename(program / "models" / "cnn2.py")
    renamed = content_hash(program)
    (program / "models" / "cnn2.py").write_text("W = 3\n")
    assert len({"d286a2555012", renamed, content_hash(program)}) == 3
    (program / "models" / "linear.py").unlink()
    alone = program / "models" / "cnn2.py"
    assert files_below(alone) == {"cnn2.py": alone}
    assert content_hash(alone) == content_hash(program / "models"), "as of a folder that holds it alone"


def test_a_missing_source_a_link_to_a_folder_and_a_name_that_is_not_utf_8_are_refused(program: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files_below(program / "nowhere")
    (program / "models" / "library").symlink_to("/tmp")
    words = f"{program}/models/library is a link to a folder: put the folder itself there"
    with pytest.raises(ValueError, match=f"^{words}$"):
        content_hash(program)
    (program / "models" / "library").unlink()
    Path(os.fsdecode(os.fsencode(program) + b"/\xff.py")).touch()
    with pytest.raises(ValueError, match=r"^the name of '\\udcff.py' is not UTF-8: rename the file$"):
        content_hash(program)


def unpacked(folder: Path, name: str, mode: int = 0o600, kind: bytes = tarfile.REGTYPE) -> None:
    with tarfile.open(folder / "a.tar", "w") as stream:
        member = tarfile.TarInfo(name)
        member.mode, member.type, member.size = mode, kind, 3 if kind == tarfile.REGTYPE else 0
        stream.addfile(member, io.BytesIO(b"abc"))
    content.unpack(folder / "a.tar", folder / "there")


def test_an_archive_unpacks_to_files_readable_by_all_and_never_outside_its_root(tmp_path: Path) -> None:
    for name, mode in (("bin/deep/tool", 0o700), ("bin/deep/text", 0o600), ("bin/deep/text", 0o600)):
        unpacked(tmp_path, name, mode)
    files = files_below(tmp_path / "there")
    found = {name: (path.read_text(), path.stat().st_mode & 0o777) for name, path in files.items()}
    assert found == {"bin/deep/text": ("abc", 0o644), "bin/deep/tool": ("abc", 0o755)}
    regular, words = tarfile.REGTYPE, f"^{tmp_path}/a.tar holds NAME, which is no file below its root$"
    for name, kind in {
        "../outside": regular,
        "/outside": regular,
        "x": tarfile.DIRTYPE,
        "y": tarfile.SYMTYPE,
    }.items():
        with pytest.raises(ValueError, match=words.replace("NAME", re.escape(name))):
            unpacked(tmp_path, name, kind=kind)


def test_a_link_exists_at_every_moment_of_its_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")  # it may be on another disk
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    link = tmp_path / "current"
    point(link, "a")
    assert [content.points_to(path, "a") for path in (link, tmp_path / "a")] == [True, False]
    missing = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            if not link.is_dir():
                missing.append(time.monotonic())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(300):
        point(link, "ab"[number % 2])
    done.set()
    watcher.join()
    assert missing == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "current"]


def test_a_directory_in_the_way_of_a_link_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "current").mkdir()
    with pytest.raises(ValueError, match=f"^{tmp_path}/current is not a symbolic link; move it away$"):
        point(tmp_path / "current", "a")


def test_a_held_lock_raises_a_timeout_that_names_the_lock(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with locked(path, 1), pytest.raises(TimeoutError, match=r"\.lock"), locked(path, 0.1):
        pass
    with locked(path, 0.1):
        pass
