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
    free = {tmp_path: 1000, Path("/proc"): 1000}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free[path]))
    here, there = tmp_path / "a" / "b", Path("/proc/nothing/there")
    assert lacking_space((here, 400), (there, 1000), (tmp_path, 600)) == ""
    assert lacking_space((here, 400), (there, 0), (tmp_path, 1100)) == (
        f"{tmp_path} has 1.0 kB free, 1.5 kB are needed"
    )
    both = f"{tmp_path} has 1.0 kB free, 1.0 kB are needed; /proc has 1.0 kB free, 2.0 MB are needed"
    assert lacking_space((here, 1001), (there, 2_000_000)) == both
    assert [readable(size) for size in (999, 1000, 10**9)] == ["999 bytes", "1.0 kB", "1.0 GB"]


def test_what_is_carried_comes_to_the_home_of_who_logged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for user in (1, os.getuid()):
        monkeypatch.setenv("SUDO_UID", str(user))
        assert login_home() == existing_parent(Path(pwd.getpwuid(user).pw_dir))
    monkeypatch.delenv("SUDO_UID")
    assert login_home() == existing_parent(Path(pwd.getpwuid(os.getuid()).pw_dir))
