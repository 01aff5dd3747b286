"""Put a release of a program on one host under the hash of its content, and keep a few older ones."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..module_utils.documented import documented_module
from ..module_utils.host.content_directory import content_hash, locked, point, points_to, unpack
from ..module_utils.host.task_traces import bytes_of

DOCUMENTATION = {
    "module": "content_release",
    "short_description": "Put a release of a program on this host, in a directory that its content names",
    "description": [
        "A release whose files are not those that its name says is put in place again.",
        "Tasks that run stay with the release that they were started from.",
        "Without C(archive) the module only says whether it needs one.",
    ],
    "options": {
        "release": {"required": True, "description": "The release's name, which is the hash of its content."},
        "folder": {"type": "path", "required": True, "description": "Where the releases are."},
        "package": {"default": "", "description": "Folder within the release that has its content."},
        "link": {"type": "path", "default": "", "description": "Link beside C(folder) to the one in use."},
        "archive": {"type": "path", "description": "A tar archive of the content, below C(package)."},
        "keep": {"type": "int", "default": 3, "description": "How many stay, beside those in use."},
        "named_in": {
            "type": "list",
            "elements": "path",
            "default": [],
            "description": "Files whose text may name a release. One that they name is in use.",
        },
    },
}

RETURN = r"""
needs_archive: {returned: always, type: bool, description: Whether the release is not on this host yet.}
release: {returned: always, type: str, description: The release.}
"""

LOCK_TIMEOUT_SECONDS = 60
# What the control group of a task of psfleet's units has in its name.
UNITS = b"/psfleet-"


@dataclass(frozen=True)
class Release:
    """One release, among the others in `folder`. Without a `link` several are in use side by side."""

    folder: Path
    name: str
    package: str = ""
    link: Path | None = None
    named_in: Sequence[Path] = ()
    processes: Path = Path("/proc")

    @property
    def place(self) -> Path:
        """Where the release is."""
        return self.folder / self.name

    @property
    def target(self) -> str:
        """What the link holds: a path relative to its own folder."""
        return f"{self.folder.name}/{self.name}"

    def is_present(self) -> bool:
        """Tell whether the release is there, with the content that its name says."""
        content = self.place / self.package
        return content.is_dir() and content_hash(content) == self.name

    def is_current(self) -> bool:
        """Tell whether the link points to the release, or whether there is to be none."""
        return self.link is None or bool(points_to(self.link, self.target))

    def unpack(self, archive: Path) -> None:
        """Unpack the archive beside its place, check it, and rename it there.

        Raises ValueError where the archive holds something else than the release.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)  # whatever the umask of the host
        with locked(self.folder / ".lock", LOCK_TIMEOUT_SECONDS):
            for leftover in self.folder.glob(".partial-*"):
                shutil.rmtree(leftover)
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=self.folder))
            unpack(archive, partial)
            found = content_hash(partial / self.package)
            if found != self.name:
                shutil.rmtree(partial)
                raise ValueError(f"{archive} holds the release {found}; expected {self.name}")
            for directory in (partial, *partial.rglob("*/")):
                directory.chmod(0o755)
            if self.place.exists():
                self.place.rename(self.folder / f".partial-damaged-{self.name}")
            partial.rename(self.place)
            shutil.rmtree(self.folder / f".partial-damaged-{self.name}", ignore_errors=True)

    def use(self) -> None:
        """Let the link point to the release, and make it the newest: pruning keeps what was deployed last."""
        if self.link is not None and not self.is_current():
            point(self.link, self.target)
        self.place.touch()

    def prunable(self, keep: int) -> list[Path]:
        """Return the releases beyond the newest `keep` that are not in use."""
        releases = [path for path in self.folder.glob("[0-9a-f]*") if path.is_dir() and not path.is_symlink()]
        releases.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        return [path for path in releases[keep:] if path != self.place and not self._is_in_use(path)]

    def _is_in_use(self, release: Path) -> bool:
        """Tell whether a process works in the release or names it on its command line, or a file names it."""
        directory = release.resolve()
        if any(uses(process, directory) for process in self.processes.glob("[0-9]*")):
            return True
        return any(release.name.encode() in bytes_of(path) for path in self.named_in)


def uses(process: Path, directory: Path) -> bool:
    """Tell whether a process works in a directory or names a file of it on its command line."""
    if f"{directory}/".encode() in bytes_of(process / "cmdline"):
        return True
    try:
        return (process / "cwd").readlink() == directory
    except OSError:
        # In a container root may not look at another user's process: a task of ours may work anywhere then.
        return UNITS in bytes_of(process / "cgroup")


def main() -> None:
    """Run the module."""
    module = documented_module(DOCUMENTATION)
    values = module.params
    release = Release(
        folder=Path(values["folder"]),
        name=values["release"],
        package=values["package"],
        link=Path(values["link"]) if values["link"] else None,
        named_in=[Path(path) for path in values["named_in"]],
    )
    present, current = release.is_present(), release.is_current()
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
            release.use()
            for path in release.prunable(values["keep"]):
                shutil.rmtree(path)
    except (OSError, ValueError, tarfile.TarError) as error:
        module.fail_json(msg=f"release {release.place}: {error}")
    module.exit_json(
        changed=not (present and current), needs_archive=needs_archive, release=release.name, diff=difference
    )


if __name__ == "__main__":
    main()
