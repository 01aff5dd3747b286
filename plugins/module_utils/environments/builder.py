"""The accounts that build and try what root will own, and how root takes over the files.

Neither Debian nor systemd assigns their numbers. So no user has these numbers, and no other process can reach
the processes of these accounts.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

BUILDER = 65530
# This account runs code of packages. It is not BUILDER, so the files that such code leaves give no rights
# over what BUILDER builds.
TRIER = 65531
# Everything that a step starts ends with the first process of its namespace, and that process ends with the
# module. unshare(1) needs the rights of root; the second setpriv(1) gives them up.
ENDS_WITH_US = ["setpriv", "--pdeathsig=KILL"]
APART = [*ENDS_WITH_US, "unshare", "--net", "--pid", "--fork", *ENDS_WITH_US, "--no-new-privs"]
LACKING = (
    ". Packages are shut in while they are installed: a host that is a container needs CAP_SYS_ADMIN for it"
)
# A file with one of these bits is not only root's: others may write it, or it runs with its owner's rights.
NOT_OURS = stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID | stat.S_ISGID


def run_step(command: Sequence[str], settings: Mapping[str, str], account: int) -> str:
    """Run a command with only the rights of an account, without a network; return its standard output.

    `settings` are all its environment variables, `account` is a uid. It ends with all processes that it
    started. Raises ValueError with the end of its output if it fails.
    """
    done = subprocess.run(
        [*APART, "--clear-groups", f"--reuid={account}", f"--regid={account}", *command],
        env=settings,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip())[-3000:]
        why = LACKING if output.startswith("unshare: unshare failed") else ""
        raise ValueError(f"{' '.join(command)} ended with {done.returncode}: {output}{why}")
    return str(done.stdout)


def lend(tree: Path) -> None:
    """Make the account BUILDER the owner of all folders of a tree, so that it can add files.

    Files that are in the tree stay root's.
    """
    for folder, _, _ in os.walk(tree):
        os.chown(folder, BUILDER, BUILDER)


def take_over(tree: Path, kept: Iterable[Path]) -> None:
    """Make root the owner of everything that BUILDER left in a tree, so that nobody else can change it.

    Raises ValueError for anything but files, folders, and links within the tree, and if a path in `kept` is
    missing or no longer belongs to root.
    """
    if lost := [path for path in kept if not os.path.lexists(path) or path.lstat().st_uid]:
        raise ValueError(f"a package has replaced {lost[0]}")
    within = Path(os.path.realpath(tree))
    folders = [tree]
    for folder in folders:
        make_own(folder, 0o755)  # before listing it: from then on nobody else changes its names
        for path in folder.iterdir():
            found = path.lstat()
            mode, lent = found.st_mode, found.st_uid == BUILDER
            if stat.S_ISDIR(mode) and lent:
                folders.append(path)
            elif stat.S_ISREG(mode) and lent:
                make_own(path, 0o755 if mode & stat.S_IXUSR else 0o644)
            elif stat.S_ISLNK(mode) and lent and within in Path(os.path.realpath(path)).parents:
                pass
            elif lent or found.st_uid or (stat.S_ISREG(mode) and mode & NOT_OURS):
                what = f"{stat.filemode(mode)}, of user {found.st_uid}"
                raise ValueError(f"{path} ({what}) is no file, folder or link within the environment")


def make_own(path: Path, mode: int) -> None:
    """Make root the owner of a file or folder, with this mode and without access lists.

    A file that another process may still have open for writing is replaced by a copy.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fchown(descriptor, 0, 0)
        os.fchmod(descriptor, mode)
        for name in os.listxattr(descriptor):
            if name.startswith("system.posix_acl"):
                os.removexattr(descriptor, name)
        if not path.is_dir() and not is_closed(descriptor):
            handle, copy = tempfile.mkstemp(dir=path.parent)
            os.close(handle)
            shutil.copy2(path, copy)
            Path(copy).replace(path)
    finally:
        os.close(descriptor)


def is_closed(descriptor: int) -> bool:
    """Return whether no process has the file open for writing.

    Only then does the kernel grant a read lease. An error of the kernel counts as False.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        return False
    return True
