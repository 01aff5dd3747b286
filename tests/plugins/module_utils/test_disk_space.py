import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from plugins.module_utils.disk_space import existing_parent, lacking_space
from tests.repository import ROOT


def test_paths_on_one_file_system_share_its_free_space(
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


LOGIN = pwd.getpwnam("daemon")
# A shell of the login's starts a program that becomes root, as sudo, su and doas do, and that starts Python.
BECOMES_ROOT = f"""
import os, sys
def child(user, work):
    if not (begun := os.fork()):
        os.setresuid(user, 0, 0)
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(begun, 0)[1])
def look():
    from plugins.module_utils.disk_space import login_home
    print(login_home(), flush=True)
    return 0
sys.exit(child({LOGIN.pw_uid}, lambda: child(0, lambda: child(0, look))))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is another user")
def test_carried_files_need_space_in_the_home_of_the_login_user_also_after_becoming_root() -> None:
    for user in ({}, {"SUDO_UID": "0"}):  # the second is set by an enclosing sudo
        ran = [sys.executable, "-c", BECOMES_ROOT]
        done = subprocess.run(ran, cwd=ROOT, env=user, stdout=subprocess.PIPE, text=True, check=True)
        assert done.stdout == f"{existing_parent(Path(LOGIN.pw_dir))}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is another user")
def test_an_unprivileged_process_is_its_own_login_user() -> None:
    asked = "import os, plugins.module_utils.disk_space as d; os.setuid({}); print(d.login_user())"
    command = [sys.executable, "-c", asked.format(LOGIN.pw_uid)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == f"{LOGIN.pw_uid}\n"
