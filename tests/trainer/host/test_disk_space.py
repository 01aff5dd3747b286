import os
import pwd
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainer.host.disk_space import existing_parent, lacking_space, login_home, readable


def test_paths_of_one_file_system_share_what_is_free_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    here, there = tmp_path / "a" / "b", Path("/proc/nothing/there")
    assert lacking_space((here, 400), (there, 1000), (tmp_path, 600)) == ""
    assert lacking_space((here, 400), (there, 0), (tmp_path, 1100)) == (
        f"{tmp_path} has 1.0 kB free, 1.5 kB are needed"
    )
    both = f"{tmp_path} has 1.0 kB free, 1.0 kB are needed; /proc has 1.0 kB free, 2.0 MB are needed"
    assert lacking_space((here, 1001), (there, 2_000_000)) == both


@pytest.mark.parametrize(
    ("size", "words"), [(999, "999 bytes"), (1000, "1.0 kB"), (2_550_000, "2.5 MB"), (10**9, "1.0 GB")]
)
def test_a_size_is_read_by_people(size: int, words: str) -> None:
    assert readable(size) == words


@pytest.mark.parametrize("user", ["1", None])
def test_what_is_carried_comes_to_the_home_of_who_logged_in(
    user: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    if user:
        monkeypatch.setenv("SUDO_UID", user)
    home = pwd.getpwuid(int(user or os.getuid())).pw_dir
    assert login_home() == existing_parent(Path(home))
