"""Releases of a program on one host. The name of each release is the hash of its content."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .content_directory import content_hash, locked, point, points_to, unpack
from .private_files import is_private, make_paths_private

LOCK_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Release:
    """One release: the directory `name` in `folder`, which has the releases of a program or of the trainer.

    - `name`: the hash of the release's content. `package`: the folder inside the release that has the
      content, "" for the release itself.
    - `link`: the link that points to the release in use; None for programs, of which several are in use.
    - `group`: the gid of the group that alone may read the release; None if everybody may.
    """

    folder: Path
    name: str
    package: str = ""
    link: Path | None = None
    group: int | None = None

    @property
    def place(self) -> Path:
        """The path of the release's directory."""
        return self.folder / self.name

    @property
    def target(self) -> str:
        """The target of the link, relative to the link's folder."""
        return f"{self.folder.name}/{self.name}"

    def is_present(self) -> bool:
        """Return whether the release exists, and its content has the hash that is its name."""
        content = self.place / self.package
        return content.is_dir() and content_hash(content) == self.name

    def public_paths(self) -> list[Path]:
        """Return the release's paths, and its folder, that are not private to the `group` (`is_private`).

        Earlier versions of psfleet left them so. Return [] if everybody may read the release (`group` is
        None), or if it does not exist.
        """
        if self.group is None or not self.place.exists():
            return []
        paths = (self.folder, self.place, *self.place.rglob("*"))
        return [path for path in paths if not is_private(path.lstat(), self.group)]

    def is_current(self) -> bool:
        """Return whether `link` points to the release; True if `link` is None."""
        return self.link is None or bool(points_to(self.link, self.target))

    def unpack(self, archive: Path) -> None:
        """Unpack the archive beside the release's place, check its content, and rename it to its place.

        It replaces a release that is there, such as a damaged one. Raises ValueError if the content's hash is
        not the release's name, and TimeoutError if another process unpacks for more than a minute.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._set_modes([self.folder])
        with locked(self.folder / ".lock", LOCK_TIMEOUT_SECONDS):
            for leftover in self.folder.glob(".partial-*"):
                shutil.rmtree(leftover)
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=self.folder))
            unpack(archive, partial)
            actual = content_hash(partial / self.package)
            if actual != self.name:
                shutil.rmtree(partial)
                raise ValueError(f"{archive} holds the release {actual}; expected {self.name}")
            self._set_modes([*partial.rglob("*"), partial])
            if self.place.exists():
                self.place.rename(self.folder / f".partial-damaged-{self.name}")
            partial.rename(self.place)
            shutil.rmtree(self.folder / f".partial-damaged-{self.name}", ignore_errors=True)

    def _set_modes(self, paths: Sequence[Path]) -> None:
        if self.group is not None:
            make_paths_private(paths, self.group)
            return
        for path in paths:
            if path.is_dir():
                path.chmod(0o755)  # regardless of the host's umask

    def use(self) -> None:
        """Make `link` point to the release; do nothing if `link` is None."""
        if self.link is not None and not self.is_current():
            point(self.link, self.target)
