"""Hostile packages, and a hostile installer, gain no rights of root and leave nothing on the host."""

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plugins.module_utils.environments.builder import BUILDER, TRIER, take_over
from tests.plugins.modules.made_environments import NAME, environment, install, make_archive
from tests.repository import ROOT

# Leaves a file whose name describes the process.
TELL = """
status = pathlib.Path("/proc/self/status").read_text()
what = f"user {{os.geteuid()}} groups {{os.getgroups()}} networks {{socket.if_nameindex()}}"
pathlib.Path({spool!r}, what + " no new rights" * ("NoNewPrivs:\\t1" in status)).touch()
subprocess.Popen(["sleep", {seconds!r}], start_new_session=True, stdout=-3, stderr=-3)
"""
TOLD = "user {} groups [] networks [(1, 'lo')] no new rights"
# The module that the package's .pth imports at each start of the environment's Python.
STARTED = f"""
import contextlib, os, pathlib, shutil, socket, subprocess
{TELL}
here = pathlib.Path(__file__).parent
with contextlib.suppress(PermissionError):
    shutil.copy("/bin/sh", here / "shell")
    (here / "shell").chmod(0o6755)
    (here / "outside").symlink_to("/etc")
    (here / "anybody").touch()
    (here / "anybody").chmod(0o666)
    os.mkfifo(here / "pipe")
"""
# Files and processes that a hostile installer leaves behind.
LEFT = f"""
import struct
{TELL}
pathlib.Path("bin/shell").write_bytes(pathlib.Path("/bin/sh").read_bytes())
os.chmod("bin/shell", 0o6755)
pathlib.Path("lib/anybody").write_text("as installed")
os.chmod("lib/anybody", 0o666)
os.link("lib/anybody", {{spool!r}} + "/second name")
os.chmod("lib", 0o7777)
entries = [(1, 7, -1), (2, 7, 65534), (4, 7, -1), (16, 7, -1), (32, 7, -1)]
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
for name in ("system.posix_acl_access", "system.posix_acl_default"):
    os.setxattr("include", name, acl)
with socket.socket(socket.AF_UNIX) as friend, open("lib/anybody", "r+") as held:
    friend.connect({{spool!r}} + "/friend")
    socket.send_fds(friend, [b"here"], [held.fileno()])
"""


@pytest.fixture
def host(open_folder: Path) -> Path:
    return open_folder / "host"


@pytest.fixture
def spool(open_folder: Path) -> Path:
    """Return a folder that everybody may write to."""
    folder = open_folder / "spool"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@pytest.fixture
def seconds() -> Iterator[str]:
    """Return a unique argument of sleep(1), and end the remaining processes with it."""
    argument = f"600.{os.getpid()}{time.monotonic_ns()}"
    yield argument
    for process in sleeping(argument):
        os.kill(process, signal.SIGKILL)


def sleeping(seconds: str) -> list[int]:
    """Return the processes with this argument."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        found += [int(process.name)] if seconds.encode() in words else []
    return found


def not_roots(tree: Path) -> list[str]:
    """Return the parts of a tree that others can change, or that link to outside."""
    found = []
    for path in [tree, *tree.rglob("*")]:
        status = path.lstat()
        kind = stat.S_IFMT(status.st_mode)
        listed = [] if kind == stat.S_IFLNK else os.listxattr(path)
        if (
            kind not in {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}
            or (status.st_uid, status.st_gid) != (0, 0)
            or (kind != stat.S_IFLNK and status.st_mode & 0o7022)
            or any(name.startswith("system.posix_acl") for name in listed)
            or (
                kind == stat.S_IFLNK
                and not path.name.startswith("python")
                and tree not in path.resolve().parents
            )
        ):
            found.append(f"{stat.filemode(status.st_mode)} {status.st_uid} {path.relative_to(tree)} {listed}")
    return found


def test_a_package_runs_only_with_rights_that_nothing_else_has_and_changes_nothing(
    host: Path, spool: Path, seconds: str, tmp_path: Path
) -> None:
    module = STARTED.format(spool=str(spool), seconds=seconds)
    files = {"started.pth": "import started\n", "started.py": module}
    archive = make_archive(tmp_path / "wheels.tar", files=files)
    fresh = environment(host, archive)
    assert install(fresh, archive) == "1.0"
    # The trial of the module has run it as no user of a host, whose programs would reach it.
    assert [path.name for path in spool.iterdir()] == [TOLD.format(TRIER)]
    assert sleeping(seconds) == []
    assert not_roots(fresh.place) == []


def test_no_program_of_a_task_reaches_the_trial_of_an_environment(
    host: Path, spool: Path, tmp_path: Path
) -> None:
    """Programs run while another environment is tried; by its memory they would get out of their sandbox."""
    waits = f"""
import pathlib, time
pathlib.Path({str(spool)!r}, "tried").touch()
while not pathlib.Path({str(spool)!r}, "seen").exists():
    time.sleep(0.01)
"""
    archive = make_archive(tmp_path / "wheels.tar", files={"waits.pth": "import waits\n", "waits.py": waits})
    fresh = environment(host, archive)
    with ThreadPoolExecutor() as aside:
        installing = aside.submit(install, fresh, archive)
        try:
            while not (spool / "tried").exists():
                assert not installing.done()
                time.sleep(0.01)
            tried = sleeping(str(fresh.place / "bin" / "python"))
            for user in ("nobody", "daemon"):  # either may be the one that tasks run as
                overwrite = [f"printf x | dd of=/proc/{pid}/mem 2>&1" for pid in tried]
                done = subprocess.run(
                    ["runuser", "--user", user, "--", "sh", "-c", "; ".join(overwrite)],
                    check=False,
                    capture_output=True,
                    text=True,
                )
                assert done.stdout.count("Permission denied") == len(tried) > 0
        finally:
            (spool / "seen").touch()
        assert installing.result() == "1.0"


def test_root_takes_over_the_installed_files_and_no_other_user_can_change_them(
    host: Path, spool: Path, seconds: str, tmp_path: Path
) -> None:
    archive = make_archive(tmp_path / "wheels.tar", after=LEFT.format(spool=str(spool), seconds=seconds))
    fresh = environment(host, archive)
    with socket.socket(socket.AF_UNIX) as friend:
        friend.bind(str(spool / "friend"))
        (spool / "friend").chmod(0o777)
        friend.listen()
        install(fresh, archive)
        _, [held], _, _ = socket.recv_fds(friend.accept()[0], 100, 1)
    assert sorted(path.name for path in spool.iterdir()) == ["friend", "second name", TOLD.format(BUILDER)]
    assert sleeping(seconds) == []
    assert not_roots(fresh.place) == []
    os.write(held, b"changed afterwards")
    os.close(held)
    assert (fresh.place / "lib" / "anybody").read_text() == "as installed"


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ("os.mkfifo('lib/pipe')", r"lib/pipe \(prw.*, of user 65530\) is no file, folder or link within"),
        ("socket.socket(socket.AF_UNIX).bind('lib/socket')", r"lib/socket \(srw.*is no file, folder or link"),
        ("os.symlink('/etc', 'lib/outside')", r"lib/outside \(lrwx.*is no file, folder or link within"),
        ("os.symlink('../../..', 'lib/above')", r"lib/above \(lrwx.*is no file, folder or link within"),
        ("os.symlink('../bin/python', 'lib/other')", r"lib/other \(lrwx.*is no file, folder or link within"),
        ("os.remove('pyvenv.cfg')", r"replaced .*/pyvenv\.cfg"),
        ("os.remove('bin/python'); os.symlink('../lib/x', 'bin/python')", r"replaced .*/bin/python"),
        ("pathlib.Path('.complete').touch()", r"contains .*/\.complete"),
    ],
)
def test_special_files_and_links_to_outside_are_refused(
    host: Path, tmp_path: Path, after: str, said: str
) -> None:
    archive = make_archive(tmp_path / "wheels.tar", after=after)
    fresh = environment(host, archive)
    with pytest.raises(ValueError, match=said):
        install(fresh, archive)
    assert not fresh.is_complete()


@pytest.mark.parametrize(
    ("file", "said"), [("pyvenv.cfg", r"replaced .*/pyvenv\.cfg"), (".complete", r"contains .*/\.complete")]
)
def test_a_package_that_replaces_files_of_the_environment_itself_is_refused(
    host: Path, tmp_path: Path, file: str, said: str
) -> None:
    archive = make_archive(tmp_path / "wheels.tar", files={f"{NAME}-1.0.data/data/{file}": "home = /tmp\n"})
    fresh = environment(host, archive)
    with pytest.raises(ValueError, match=said):
        install(fresh, archive)
    assert not fresh.is_complete()


def test_a_killed_installation_leaves_no_process(host: Path, spool: Path, tmp_path: Path) -> None:
    os.mkfifo(spool / "alive")
    (spool / "alive").chmod(0o666)
    after = f"alive = open('{spool}/alive', 'w'); print(file=alive, flush=True); signal.pause()"
    archive = make_archive(tmp_path / "wheels.tar", after=after)
    fresh = environment(host, archive)
    if not (child := os.fork()):
        install(fresh, archive)
        os._exit(0)
    with (spool / "alive").open(encoding="utf-8") as alive:
        assert alive.readline() == "\n"
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert alive.read() == ""  # once no process can write to it any more
    assert not fresh.is_complete()


def test_a_host_without_namespaces_for_root_is_refused_with_the_reason() -> None:
    step = (
        "from plugins.module_utils.environments.builder import run_step; "
        "run_step(['true'], {'PATH': '/usr/bin'}, 0)"
    )
    command = ["setpriv", "--bounding-set=-sys_admin", sys.executable, "-c", step]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "Operation not permitted. Packages are shut in while they are installed" in done.stderr


def test_a_marker_of_another_user_does_not_make_an_environment_complete(host: Path, tmp_path: Path) -> None:
    fresh = environment(host, make_archive(tmp_path / "wheels.tar"))
    fresh.place.mkdir(parents=True)
    fresh.marker.touch()
    assert fresh.is_complete()
    os.chown(fresh.marker, BUILDER, BUILDER)
    assert not fresh.is_complete()


@pytest.mark.parametrize(("owner", "mode"), [(0, 0o4755), (0, 0o664), (65534, 0o644)])
def test_a_hard_link_in_the_tree_is_refused_and_left_unchanged(tmp_path: Path, owner: int, mode: int) -> None:
    # It may be a hard link: a setting of the kernel decides who can link to a foreign file.
    (tmp_path / "file").touch()
    os.chown(tmp_path / "file", owner, owner)
    (tmp_path / "file").chmod(mode)
    with pytest.raises(ValueError, match="is no file, folder or link within the environment"):
        take_over(tmp_path, [])
    status = (tmp_path / "file").stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (owner, mode)
