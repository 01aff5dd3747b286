"""Install a locked Python environment on one host, offline, and make it the one in use."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.content_directory import (
    file_sha256,
    locked,
    point,
    points_to,
    sync_directory,
    unpack,
)
from ansible.module_utils.disk_space import lacking_space, login_home

DOCUMENTATION = r"""
module: python_environment
short_description: Install a locked Python environment offline and make it the one in use
description:
  - The environment is C(environments/<lock_hash>) below C(directory). The file C(.complete) in it is written
    last. A directory without it is the rest of an interrupted installation, and is made anew.
  - The link points to a complete environment or does not exist.
  - With C(base) the new environment begins as a complete one that is there already, at no cost of disk, and
    the archive holds only what is added to it.
options:
  lock_hash:
    description: Hash of the lock; it names the environment.
    type: str
    required: true
  directory:
    description: Where C(environments/) and the link are.
    type: path
    required: true
  link:
    description: Name of the link in C(directory) that points to the environment in use. Empty for none.
    type: str
    default: environment
  base:
    description: Hash of the lock of the environment that this one adds to. Empty for none.
    type: str
    default: ""
  python_version:
    description: Version of the system's Python that the environment is made from, such as C(3.11).
    type: str
    required: true
  user:
    description: User with whose rights the new environment is tried.
    type: str
    required: true
  module:
    description: Module of Python that the trial imports.
    type: str
    required: true
  archive_sha256:
    description: SHA-256 of the archive.
    type: str
    required: true
  archive_bytes:
    description: Size of the archive.
    type: int
    required: true
  environment_bytes:
    description: Size of the finished environment.
    type: int
    required: true
  archive:
    description:
      - A tar archive on this host with C(wheels/), C(requirements.txt) and C(uv).
      - Without it the module only says whether it needs one.
    type: path
author: psfleet
"""

EXAMPLES = r"""
- name: Install TensorFlow
  python_environment:
    lock_hash: 7640eff1899e
    directory: /opt/psfleet
    python_version: "3.11"
    user: psfleet
    module: tensorflow
    archive: /var/tmp/wheels.tar
    archive_sha256: d698f56337894848f4e8fb1effe2ef6d952492bfb53b31cfa2e7ad15316164e9
    archive_bytes: 372920320
    environment_bytes: 1900000000
"""

RETURN = r"""
needs_archive:
  description: Whether the environment is not complete on this host.
  returned: always
  type: bool
version:
  description: Version of the module that was imported on trial.
  returned: when the environment was installed
  type: str
"""

# A second installation waits for a first one that a broken connection has left running.
LOCK_TIMEOUT_SECONDS = 900
MARKER = ".complete"


@dataclass(frozen=True)
class Lock:
    """What is to be installed."""

    name: str
    archive_sha256: str
    archive_bytes: int
    environment_bytes: int
    python_version: str
    module: str
    base: str = ""


class Environment:
    """A Python environment that is named by the hash of its lock."""

    def __init__(self, directory: Path, lock: Lock, link: str = "environment") -> None:
        """Take the directory that holds `environments/` and the link; without a name there is no link."""
        self.folder = directory / "environments"
        self.link = directory / link if link else None
        self.lock = lock
        self.place = self.folder / lock.name
        self.target = f"environments/{lock.name}"
        self.marker = self.place / MARKER
        self.work = self.folder / f".work-{lock.name}"

    def is_complete(self) -> bool:
        """Tell whether the installation came to its end."""
        return self.marker.is_file()

    def is_in_use(self) -> bool:
        """Tell whether the link points to it, or whether there is to be none."""
        return self.link is None or bool(points_to(self.link, self.target))

    def lacking_space(self, login_home: Path) -> str:
        """Return what is missing for carrying and installing, in words, or an empty string."""
        archive = self.lock.archive_bytes
        here = {self.folder: archive + self.lock.environment_bytes}
        return str(lacking_space(here | {login_home: archive + here.get(login_home, 0)}))

    def install(self, archive: Path, user: str) -> str:
        """Make the environment from the archive, and return the version of the module that it was made for.

        Raises ValueError where the archive is damaged or a step fails; the environment is not complete then.
        """
        os.umask(0o022)
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder / ".lock", LOCK_TIMEOUT_SECONDS):
            if not self.is_complete():
                self._check(archive)
                for leftover in (self.place, self.work):
                    shutil.rmtree(leftover, ignore_errors=True)
                self.work.mkdir()
                unpack(archive, self.work)
                self._build()
                shutil.rmtree(self.work)
            version = self._try(user)
            self.marker.write_text(f"{self.lock.module} {version}\n", encoding="utf-8")
            sync_directory(self.place)
        return version

    def use(self) -> None:
        """Let the link point to the environment."""
        if self.link is not None:
            point(self.link, self.target)

    def _check(self, archive: Path) -> None:
        found = file_sha256(archive)
        if found != self.lock.archive_sha256:
            raise ValueError(
                f"{archive} was damaged on its way: sha256 is {found}, expected {self.lock.archive_sha256} "
                f"({archive.stat().st_size} of {self.lock.archive_bytes} bytes). Nothing was unpacked"
            )

    def _build(self) -> None:
        """Let uv make the environment from the wheels alone; it checks each against the lock's hashes."""
        uv = str(self.work / "uv")
        settings = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.work),
            "LC_ALL": "C.UTF-8",
            "UV_CACHE_DIR": str(self.work / "cache"),
            "UV_NO_CONFIG": "1",
            "UV_OFFLINE": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_LINK_MODE": "hardlink",
        }
        if self.lock.base:
            self._begin_with(self.folder / self.lock.base)
        else:
            interpreter = f"--python=python{self.lock.python_version}"
            run_step([uv, "venv", "--quiet", "--no-project", interpreter, str(self.place)], settings)
        # Without byte code each start of a task takes three seconds longer, and tasks may not write it.
        wheels = [
            "--no-index",
            f"--find-links={self.work / 'wheels'}",
            "--require-hashes",
            "--compile-bytecode",
        ]
        # The lock is whole: uv need not look for what its packages require, some of which the base has.
        lock = ["--no-deps", f"--requirement={self.work / 'requirements.txt'}"]
        run_step([uv, "pip", "install", "--quiet", f"--python={self.place}", *wheels, *lock], settings)

    def _begin_with(self, base: Path) -> None:
        """Make the place a second name for every file of a complete environment, with scripts of its own."""
        if not (base / MARKER).is_file():
            raise ValueError(f"{base}, which it adds to, is not complete: deploy again")
        ignored = shutil.ignore_patterns(MARKER)
        shutil.copytree(base, self.place, symlinks=True, copy_function=os.link, ignore=ignored)
        for path in [self.place / "pyvenv.cfg", *(self.place / "bin").iterdir()]:
            content = b"" if path.is_symlink() else path.read_bytes()
            if bytes(base) in content:
                own = path.with_name(f".{path.name}")
                own.write_bytes(content.replace(bytes(base), bytes(self.place)))
                own.chmod(path.stat().st_mode)
                own.replace(path)

    def _try(self, user: str) -> str:
        """Import the module as the tasks' user, without a GPU, and return its version."""
        account = pwd.getpwnam(user)
        program = f"import {self.lock.module} as module; print(module.__version__)"
        settings = {
            "PATH": "/usr/bin:/bin",
            "HOME": "/",
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        command = [str(self.place / "bin" / "python"), "-c", program]
        said = run_step(command, settings, account=account)
        return said.strip().splitlines()[-1]


def run_step(
    command: Sequence[str], settings: dict[str, str], account: pwd.struct_passwd | None = None
) -> str:
    """Run one step and return what it printed. Raises ValueError with what it said where it fails."""
    done = subprocess.run(
        command,
        env=settings,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        user=account.pw_uid if account else None,
        group=account.pw_gid if account else None,
        extra_groups=[] if account else None,
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-3000:]
        raise ValueError(f"{' '.join(command)} ended with {done.returncode}: {said}")
    return done.stdout


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "lock_hash": {"type": "str", "required": True},
            "directory": {"type": "path", "required": True},
            "python_version": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "module": {"type": "str", "required": True},
            "link": {"type": "str", "default": "environment"},
            "base": {"type": "str", "default": ""},
            "archive_sha256": {"type": "str", "required": True},
            "archive_bytes": {"type": "int", "required": True},
            "environment_bytes": {"type": "int", "required": True},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    values = module.params
    lock = Lock(
        name=values["lock_hash"],
        archive_sha256=values["archive_sha256"],
        archive_bytes=values["archive_bytes"],
        environment_bytes=values["environment_bytes"],
        python_version=values["python_version"],
        module=values["module"],
        base=values["base"],
    )
    environment = Environment(Path(values["directory"]), lock, values["link"])
    complete, in_use = environment.is_complete(), environment.is_in_use()
    result: dict[str, Any] = {"changed": not (complete and in_use), "needs_archive": False}
    if not in_use:
        result["diff"] = {"before": "", "after": f"{environment.link} -> {environment.target}\n"}
    try:
        if not complete and not values["archive"]:
            lacking = environment.lacking_space(login_home())
            if lacking:
                module.fail_json(msg=f"Too little space for the environment: {lacking}. Nothing was copied.")
            module.exit_json(**{**result, "needs_archive": True})
        if not complete and not module.check_mode:
            result["version"] = environment.install(Path(values["archive"]), values["user"])
        if not in_use and not module.check_mode:
            environment.use()
    except (OSError, ValueError, KeyError, tarfile.TarError) as error:
        module.fail_json(msg=f"The Python environment {environment.place} is not installed: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
