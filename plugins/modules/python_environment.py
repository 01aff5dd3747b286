"""Installs a locked Python environment on one host, offline, and makes it the environment in use.

The environment is `environments/<lock_hash>` below `directory`. Its file `.complete` is written last; a
directory without this file is left from an interrupted installation, and is replaced. The link points to a
complete environment, or does not exist. If `wheels` names a `base`, the new environment begins as hard links to that
complete environment, which take no disk space, without the `removed` packages; the archive contains only the other
packages. Without `archive`, the module only returns whether it needs one.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: python_environment
short_description: Installs a locked Python environment on one host, offline, and makes it the environment in use
description:
  - The environment is V(environments/<lock_hash>) below V(directory).
  - Its file V(.complete) is written last; a directory without this file is left from an interrupted installation, and
    is replaced.
  - The link points to a complete environment, or does not exist.
  - If V(wheels) names a V(base), the new environment begins as hard links to that complete environment, which take no disk
    space, without its V(removed) packages; the archive contains only the other packages.
  - Without V(archive), the module only returns whether it needs one.
  - The action carries the archive to hosts that need it. It also takes C(shared_by), an account through which hosts take
    the archive from each other; empty for none.
author: psfleet (@psfleet)
options:
  wheels:
    description: What M(psfleet.cluster.wheel_store) returned for the environment.
    type: dict
    required: true
  directory:
    description: The folder in which the environments and the link are.
    type: path
    required: true
  link:
    description: Name of the link. Empty for none.
    type: str
    default: environment
  module:
    description: The Python module that is imported to try the environment.
    type: str
    required: true
  archive:
    description: A tar archive of V(wheels/), V(requirements.txt) and V(uv). If V(wheels) has V(filled), it is an archive,
      packed with Zstandard, of all files of an environment except its Python.
    type: path
  shared:
    description: Set it if other hosts may take the archive from this host while it is installed. Without V(archive), this
      host takes the archive from its V(neighbours), through the account V(login). The V(size), the V(part_bytes) and the
      V(digests) describe the archive and its parts.
    type: dict
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: Install the locked Python environment with TensorFlow
  psfleet.cluster.python_environment:
    wheels: "{{ wheels.environments['cpu-python3.11-x86_64'] }}"
    directory: /opt/psfleet
    link: environment
    module: tensorflow
"""

RETURN = r"""
needs_archive:
  returned: always
  type: bool
  description: Whether the environment is not complete, so that the module needs the archive.
not_given:
  returned: where no neighbour gave it
  type: str
  description: Why each neighbour did not give the archive.
"""

import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.content_directory import locked, point, points_to, sync_directory, unpack
from ..module_utils.deployment import MARKER, is_complete
from ..module_utils.disk_space import lacking_space, login_home
from ..module_utils.environments.builder import BUILDER, TRIER, lend, run_step, take_over
from ..module_utils.environments.installation import (
    empty_command,
    filling_commands,
    filling_settings,
    make_commands_own,
    remove_byte_code_without_source,
    removing_commands,
    unpack_filled,
)
from ..module_utils.environments.passed_archive import Archive, NoNeighbourError, ssh_give_command, take
from ..module_utils.host.whole_files import file_sha256
from ..module_utils.module import make_module

ARGUMENTS: dict[str, Any] = {
    "wheels": {"type": "dict", "required": True},
    "directory": {"type": "path", "required": True},
    "link": {"default": "environment"},
    "module": {"required": True},
    "archive": {"type": "path"},
    "shared": {"type": "dict"},
}


# An installation waits this long for another one, which may still run after its connection broke.
LOCK_TIMEOUT_SECONDS = 900


class Environment:
    """A Python environment below `directory`, named by the hash of its lock, and its link.

    `wheels` is what `wheel_store` returned for the environment. `link` is the link's name, "" for none.
    """

    def __init__(self, directory: Path, wheels: Mapping[str, Any], link: str = "environment") -> None:
        self.folder = directory / "environments"
        self.link = directory / link if link else None
        self.wheels, self.base = wheels, str(wheels.get("base", ""))
        self.target = f"environments/{wheels['lock_hash']}"
        self.place = directory / self.target
        self.marker = self.place / MARKER
        self.work = self.folder / f".work-{wheels['lock_hash']}"
        self.archive = self.folder / f".archive-{wheels['lock_hash']}"

    def is_complete(self) -> bool:
        """Return whether the environment was installed completely."""
        return is_complete(self.place)

    def is_in_use(self) -> bool:
        """Return whether the link points to the environment; True if it is to have no link (`link` is "")."""
        return self.link is None or bool(points_to(self.link, self.target))

    def lacking_space(self, login_home: Path) -> str:
        """Return, in words, where disk space is missing to carry and install the environment; "" if nowhere.

        `login_home` is the home of the login user, to which Ansible copies the archive first.
        """
        archive, environment = (int(self.wheels[name]) for name in ("archive_bytes", "environment_bytes"))
        return str(lacking_space((login_home, archive), (self.folder, archive + environment)))

    def install(self, archive: Path | None, module: str, shared: Mapping[str, Any] | None = None) -> str:
        """Install the environment; return the version of `module`, which is imported to try the environment.

        The packages are in `archive`; if it is None, the neighbours in `shared` (the module's option) give
        it. If the environment is complete already, it is only tried. Raises ValueError if the archive is
        damaged or a step fails; then the environment is not complete. Raises NoNeighbourError if no neighbour
        gave the archive.
        """
        os.umask(0o022)
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder / ".lock", LOCK_TIMEOUT_SECONDS), self._at_hand(archive, shared) as here:
            if not self.is_complete():
                self._check_archive(here)
                for leftover in (self.place, self.work):
                    shutil.rmtree(leftover, ignore_errors=True)
                if self.wheels.get("filled"):
                    self._unpack_filled(here)
                else:
                    self.work.mkdir()
                    unpack(here, self.work)
                    self._build()
                    shutil.rmtree(self.work)
            version = self._try(module)
            self.marker.write_text(f"{module} {version}\n", encoding="utf-8")
            sync_directory(self.place)
        return version

    def use(self) -> None:
        """Make the link point to the environment; do nothing if it is to have no link."""
        if self.link is not None:
            point(self.link, self.target)

    @contextmanager
    def _at_hand(self, archive: Path | None, shared: Mapping[str, Any] | None) -> Iterator[Path]:
        """Yield the path of the archive.

        With `shared`, other hosts find the archive there during the block, and it is removed after that.
        Without `archive`, neighbours give it first.
        """
        if shared is None:
            yield archive or self.archive
            return
        self.archive.unlink(missing_ok=True)
        try:
            if archive:
                shutil.move(archive, self.archive)
                os.chown(self.archive, 0, 0)
                self.archive.chmod(0o644)
            else:
                wanted = Archive(shared["size"], shared["part_bytes"], shared["digests"])
                give_command = ssh_give_command(shared["login"], self.wheels["lock_hash"], wanted.size)
                take(wanted, self.archive, shared["neighbours"], give_command)
            yield self.archive
        finally:
            self.archive.unlink(missing_ok=True)

    def _check_archive(self, archive: Path) -> None:
        found = file_sha256(archive)
        if found != self.wheels["archive_sha256"]:
            raise ValueError(
                f"{archive} was damaged on its way: sha256 is {found}, expected "
                f"{self.wheels['archive_sha256']} ({archive.stat().st_size} of "
                f"{self.wheels['archive_bytes']} bytes). Nothing was unpacked"
            )

    def _unpack_filled(self, archive: Path) -> None:
        """Unpack what the controller installed, owned by root, into a new environment or over its base's files."""
        if self.base:
            self._begin_with(self.folder / self.base)
        else:
            run_step(
                empty_command(self.place, self.wheels["python_version"]), filling_settings(self.folder), 0
            )
        unpack_filled(archive, self.place)  # it replaces links to files of the base

    def _build(self) -> None:
        """Fill the environment from the wheels with uv, which checks each wheel against the lock's hashes.

        An account without rights does it, and no code of a wheel runs. Then root takes over the files.
        """
        home = self.work / "home"
        home.mkdir()
        lend(home)
        settings = filling_settings(home)
        version = self.wheels["python_version"]
        if self.base:
            self._begin_with(self.folder / self.base)
        else:
            run_step(empty_command(self.place, version), settings, 0)
        # Units start these files, which root owns; a package must not replace them.
        kept = [self.place / "pyvenv.cfg", *self.place.glob("bin/python*")]
        lend(self.place)
        for command in removing_commands(self.place, self.work, self.wheels["removed"] if self.base else []):
            run_step(command, settings, BUILDER)
            remove_byte_code_without_source(self.place)
        for command in filling_commands(self.place, self.work, version):
            run_step(command, settings, BUILDER)
        if os.path.lexists(self.marker):
            raise ValueError(f"a package contains {self.marker}")
        take_over(self.place, kept)

    def _begin_with(self, base: Path) -> None:
        """Create the environment as hard links to the files of `base`, a complete environment.

        It gets scripts of its own, which name its own path. Raises ValueError if `base` is not complete.
        """
        if not is_complete(base):
            raise ValueError(f"{base}, with whose files it begins, is not complete: deploy again")
        ignored = shutil.ignore_patterns(MARKER, ".lock")
        shutil.copytree(base, self.place, symlinks=True, copy_function=os.link, ignore=ignored)
        make_commands_own(self.place, bytes(base))

    def _try(self, module: str) -> str:
        """Import the module, without a GPU, and return its version.

        The tasks' user does not do it: a program of this user that runs meanwhile could leave its sandbox
        through the memory of this process.
        """
        settings = {
            "PATH": "/usr/bin:/bin",
            "HOME": "/",
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        # Python's garbage collector would take a third of the time and free nothing.
        program = f"import gc; gc.disable(); import {module} as module; print(module.__version__)"
        command = [str(self.place / "bin" / "python"), "-c", program]
        printed = run_step(command, settings, TRIER)
        return printed.strip().splitlines()[-1]


def run(module: AnsibleModule) -> None:
    """Install the environment and point the link to it, and exit with the answer.

    If it is not installed, and there is no archive or neighbour, the answer only says `needs_archive`. In
    check mode nothing is changed.
    """
    values = module.params
    environment = Environment(Path(values["directory"]), values["wheels"], values["link"])
    complete, in_use = environment.is_complete(), environment.is_in_use()
    result: dict[str, Any] = {"changed": not (complete and in_use), "needs_archive": False}
    if not in_use:
        result["diff"] = {"before": "", "after": f"{environment.link} -> {environment.target}\n"}
    try:
        if not complete and not (values["archive"] or values["shared"]):
            if lacking := environment.lacking_space(login_home()):
                module.fail_json(msg=f"Too little space for the environment: {lacking}. Nothing was copied.")
            module.exit_json(**{**result, "needs_archive": True})
        if not complete and not module.check_mode:
            archive = Path(values["archive"]) if values["archive"] else None
            environment.install(archive, values["module"], values["shared"])
        if not in_use and not module.check_mode:
            environment.use()
    except NoNeighbourError as error:
        module.exit_json(changed=True, needs_archive=True, not_given=str(error))
    except (OSError, ValueError, KeyError, tarfile.TarError) as error:
        module.fail_json(msg=f"The Python environment {environment.place} is not installed: {error}")
    module.exit_json(**result)


def main() -> None:
    """Run the module with the arguments from Ansible; exit with its answer, or with a failure."""
    run(make_module(ARGUMENTS))


if __name__ == "__main__":
    main()
