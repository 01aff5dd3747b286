"""Which users can change a cache, with real directories of real users."""

import grp
import os
import pwd
import stat
from pathlib import Path

import pytest

from psfleet.carry.own_cache import others_write, own_cache

DAEMON = pwd.getpwnam("daemon").pw_uid


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Return a cache with wheels, below a directory "above"."""
    folder = tmp_path / "above" / "cache"
    (folder / "wheels" / "0123").mkdir(parents=True)
    (folder / "wheels" / "0123" / "wheels.tar").touch()
    (folder / "locks").mkdir()
    (folder / "environments").mkdir(mode=0o777)  # nothing of it is given to hosts by deploy.yml
    return folder


def test_a_cache_of_the_user_and_a_missing_cache_are_accepted(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert own_cache(str(cache)) == cache
    assert own_cache(str(cache / "not" / "yet")) == cache / "not" / "yet"
    (cache.parent / "link").symlink_to(cache)
    assert own_cache(str(cache.parent / "link")) == cache
    monkeypatch.setenv("HOME", str(cache.parent))
    assert own_cache("~/cache") == cache
    cache.parent.chmod(0o1777)
    assert own_cache(str(cache)) == cache


@pytest.mark.parametrize("place", ["", "wheels", "wheels/0123", "wheels/0123/wheels.tar", "locks", ".."])
@pytest.mark.parametrize(("mode", "owner"), [(0o777, 0), (0o757, 0), (0o755, DAEMON)])
def test_a_cache_that_other_users_can_change_is_refused_with_advice(
    cache: Path, place: str, mode: int, owner: int
) -> None:
    path = (cache / place).resolve()
    path.chmod(mode)
    os.chown(path, owner, -1)
    whose = f"{path} has mode {mode:04o} and is {pwd.getpwuid(owner).pw_name}'s"
    with pytest.raises(ValueError, match=rf"{whose}.*chmod go-w {path}\. .*another cache: PSFLEET_CACHE"):
        own_cache(str(cache))


def test_a_work_folder_that_only_its_owner_can_enter_is_accepted_whatever_it_contains(cache: Path) -> None:
    work = cache / "wheels" / "0123" / "work"
    work.mkdir(mode=0o700)
    (work / ".lock").touch()
    (work / ".lock").chmod(0o666)
    assert own_cache(str(cache)) == cache
    work.chmod(0o701)
    with pytest.raises(ValueError, match=r"work/\.lock has mode 0666"):
        own_cache(str(cache))


@pytest.mark.parametrize("place", ["", "wheels"])
def test_a_sticky_directory_that_others_can_write_is_refused_as_the_cache(cache: Path, place: str) -> None:
    (cache / place).chmod(0o1777)
    with pytest.raises(ValueError, match="has mode 1777"):
        own_cache(str(cache))


def test_the_target_of_a_link_in_the_cache_is_checked(cache: Path) -> None:
    elsewhere = cache.parent / "disk"
    (cache / "wheels").rename(elsewhere)
    (cache / "wheels").symlink_to(elsewhere)
    assert own_cache(str(cache)) == cache
    (elsewhere / "0123").chmod(0o777)
    with pytest.raises(ValueError, match=f"{elsewhere}/0123 has mode 0777"):
        own_cache(str(cache))


def test_a_group_may_write_only_if_the_user_is_its_only_member(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(os.getegid())
    for path in (cache, cache / "wheels"):
        path.chmod(0o775)
        os.chown(path, -1, own.pw_gid)
    assert own_cache(str(cache)) == cache
    os.chown(cache, -1, DAEMON)
    with pytest.raises(ValueError, match="has mode 0775"):
        own_cache(str(cache))
    os.chown(cache, -1, own.pw_gid)
    for name, members in ((group.gr_name, ["daemon"]), ("users", [])):
        changed = grp.struct_group((name, "x", own.pw_gid, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, changed=changed: changed)
        with pytest.raises(ValueError, match="has mode 0775"):
            own_cache(str(cache))
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # as in a container with a nameless user
    with pytest.raises(ValueError, match=f"is {own.pw_uid}'s"):
        own_cache(str(cache))


def test_a_sticky_directory_of_another_user_counts_as_writable_by_others() -> None:
    of_daemon = os.stat_result((stat.S_IFDIR | 0o1777, 0, 0, 1, DAEMON, 0, 0, 0, 0, 0))
    assert others_write(of_daemon, is_above=True)
