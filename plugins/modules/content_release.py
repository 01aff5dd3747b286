"""Puts a release of a program on one host, under the hash of its content.

A release whose files do not fit its name is replaced. With `group`, only root and this group may read it.
Running tasks keep the release that they were started from. Without `archive` the module only returns whether
it needs one.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: content_release
short_description: Puts a release of a program on one host, under the hash of its content
description:
  - A release whose files do not fit its name is replaced.
  - With V(group), only root and this group may read it.
  - Running tasks keep the release that they were started from.
  - Without V(archive) the module only returns whether it needs one.
author: psfleet (@psfleet)
options:
  release:
    description: The release's name, which is the hash of its content.
    type: str
    required: true
  folder:
    description: Where the releases are.
    type: path
    required: true
  package:
    description: Folder within the release that has its content.
    type: str
    default: ''
  link:
    description: Link beside V(folder) to the release in use.
    type: path
    default: ''
  group:
    description: Group that may read the releases; empty for everybody.
    type: str
    default: ''
  archive:
    description: A tar archive of the content, below V(package).
    type: path
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: Put a program in place
  psfleet.cluster.content_release:
    source: ~/models/train.py
    folder: /opt/psfleet/programs
    group: psfleet
"""

RETURN = r"""
needs_archive:
  returned: always
  type: bool
  description: Whether this host lacks the release.
release:
  returned: always
  type: str
  description: The release.
"""

import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.content_directory import content_hash, locked, point, points_to, unpack
from ..module_utils.module import made
from ..module_utils.private_files import group_number, hide, is_private

ARGUMENTS: dict[str, Any] = {
    "release": {"required": True},
    "folder": {"type": "path", "required": True},
    "package": {"default": ""},
    "link": {"type": "path", "default": ""},
    "group": {"default": ""},
    "archive": {"type": "path"},
}


LOCK_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Release:
    """One release among the others in `folder`; without a `link`, several are in use side by side.

    Only root and the group with the number `group` may read it, or everybody if `group` is None.
    """

    folder: Path
    name: str
    package: str = ""
    link: Path | None = None
    group: int | None = None

    @property
    def place(self) -> Path:
        """The path of the release."""
        return self.folder / self.name

    @property
    def target(self) -> str:
        """The target of the link, relative to the link's folder."""
        return f"{self.folder.name}/{self.name}"

    def is_present(self) -> bool:
        """Return whether the release exists, with the content that its name stands for."""
        content = self.place / self.package
        return content.is_dir() and content_hash(content) == self.name

    def public(self) -> list[Path]:
        """Return what others may read, as earlier releases of psfleet left it."""
        if self.group is None or not self.place.exists():
            return []
        paths = (self.folder, self.place, *self.place.rglob("*"))
        return [path for path in paths if not is_private(path.lstat(), self.group)]

    def is_current(self) -> bool:
        """Return whether the link points to the release, or whether there is no link."""
        return self.link is None or bool(points_to(self.link, self.target))

    def unpack(self, archive: Path) -> None:
        """Unpack the archive beside its place, check it, and rename it to its place.

        Raises ValueError if the archive contains anything but the release.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._set_modes([self.folder])
        with locked(self.folder / ".lock", LOCK_TIMEOUT_SECONDS):
            for leftover in self.folder.glob(".partial-*"):
                shutil.rmtree(leftover)
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=self.folder))
            unpack(archive, partial)
            found = content_hash(partial / self.package)
            if found != self.name:
                shutil.rmtree(partial)
                raise ValueError(f"{archive} holds the release {found}; expected {self.name}")
            self._set_modes([*partial.rglob("*"), partial])
            if self.place.exists():
                self.place.rename(self.folder / f".partial-damaged-{self.name}")
            partial.rename(self.place)
            shutil.rmtree(self.folder / f".partial-damaged-{self.name}", ignore_errors=True)

    def _set_modes(self, paths: Sequence[Path]) -> None:
        if self.group is not None:
            hide(paths, self.group)
            return
        for path in paths:
            if path.is_dir():
                path.chmod(0o755)  # regardless of the host's umask

    def use(self) -> None:
        """Make the link point to the release."""
        if self.link is not None and not self.is_current():
            point(self.link, self.target)


def run(module: AnsibleModule) -> None:
    """Do it, and answer."""
    values = module.params
    try:
        group = group_number(values["group"], check_mode=module.check_mode) if values["group"] else None
    except ValueError as error:
        module.fail_json(msg=str(error))
    release = Release(
        folder=Path(values["folder"]),
        name=values["release"],
        package=values["package"],
        link=Path(values["link"]) if values["link"] else None,
        group=group,
    )
    present, current, public = release.is_present(), release.is_current(), release.public()
    needs_archive = not present and not values["archive"]
    difference = {} if present else {"before": "", "after": f"{release.place}\n"}
    if release.link and not current:
        before = release.link.readlink() if release.link.is_symlink() else ""
        difference = {
            "before": f"{release.link} -> {before}\n",
            "after": f"{release.link} -> {release.target}\n",
        }
    try:
        if not needs_archive and not module.check_mode:
            if not present:
                release.unpack(Path(values["archive"]))
            elif group is not None:
                hide(public, group)
            release.use()
    except (OSError, ValueError, tarfile.TarError) as error:
        module.fail_json(msg=f"release {release.place}: {error}")
    module.exit_json(
        changed=bool(public) or not (present and current),
        needs_archive=needs_archive,
        release=release.name,
        diff=difference,
    )


def main() -> None:
    """Run the module."""
    run(made(ARGUMENTS))


if __name__ == "__main__":
    main()
