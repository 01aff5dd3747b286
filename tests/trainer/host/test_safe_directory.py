"""Which links root follows, and which files it leaves behind."""

import os
import stat
from pathlib import Path

import pytest

from trainer.host.safe_directory import opened, opened_below, parts_of, remove, status_of

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories away")


@as_root
@pytest.mark.parametrize(
    ("owner", "mode", "followed"),
    [
        (0, 0o755, True),
        (0, 0o775, False),
        (0, 0o757, False),
        (0, 0o1777, False),  # as /tmp, where others cannot remove a link, but make one
        (1, 0o755, False),
        (1, 0o700, False),
    ],
)
def test_a_link_is_followed_only_in_a_folder_that_root_alone_can_change(
    tmp_path: Path, owner: int, mode: int, followed: bool
) -> None:
    (tmp_path / "disk" / "below").mkdir(parents=True)
    place = tmp_path / "place"
    place.mkdir()
    (place / "link").symlink_to(tmp_path / "disk")
    (place / "file").write_text("")
    place.chmod(mode)
    os.chown(place, owner, 0)
    before = len([*Path("/proc/self/fd").iterdir()])
    if followed:
        with opened(place / "link" / "below") as here:
            assert os.fstat(here).st_ino == (tmp_path / "disk" / "below").stat().st_ino
        with pytest.raises(NotADirectoryError), opened(place / "file"):
            pass
    else:
        words = f"link in {place}/link/below is not a directory, or a link that"
        with pytest.raises(ValueError, match=words), opened(place / "link" / "below"):
            pass
    below = pytest.raises(ValueError, match="link in link is not a directory, or a link")
    with opened(place) as root, below, opened_below(root, ["link"]):
        pass
    with opened(place) as root:
        found = status_of(root, "link")
        assert found is not None
        assert stat.S_ISLNK(found.st_mode)
        assert [status_of(root, name) for name in ("link/below", "file/x", "nothing/x")] == [None] * 3
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_created_directories_are_writable_only_by_their_owner_and_removed_when_empty(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        with opened(tmp_path / "a" / "b", make=True) as root, opened_below(root, ("c", "d"), make=True):
            pass
    finally:
        os.umask(umask)
    made = [tmp_path / "a", *(tmp_path / "a").rglob("*")]
    assert {path.stat().st_mode & 0o7777 for path in made} == {0o755}
    for name in ("c/d/x", "c/y"):
        (tmp_path / "a" / "b" / name).write_text("")
    with opened(tmp_path / "a" / "b") as root:
        remove(root, "c/y")
        assert [path.name for path in (tmp_path / "a" / "b" / "c").iterdir()] == ["d"]
        remove(root, "c/d/x")
        assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "/x", "../x", "a/../x", "a\0b"])
def test_a_name_that_could_leave_the_directory_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no path below a directory"):
        parts_of(name)
