"""Put a release of the trainer on one host, make it the current one, and keep a few older ones."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.content_directory import content_hash, locked, point, points_to, unpack

DOCUMENTATION = r"""
module: trainer_release
short_description: Put a release of the trainer on this host and make it the current one
description:
  - A release whose files are not those that its name says is put in place again.
  - Tasks that run stay with the release that they were started from.
options:
  release:
    description: The release's name, which is the hash of its content.
    type: str
    required: true
  directory:
    description: Where C(releases/) and the link C(current) are.
    type: path
    required: true
  archive:
    description:
      - A tar archive on this host with the folder C(trainer).
      - Without it the module only says whether it needs one.
    type: path
  keep:
    description: How many releases to keep. One that is current or that a process uses stays in any case.
    type: int
    default: 3
author: psfleet
"""

EXAMPLES = r"""
- name: Put the release in place
  trainer_release:
    release: 0a1b2c3d4e5f
    directory: /opt/psfleet
    archive: /var/tmp/release.tar
"""

RETURN = r"""
needs_archive:
  description: Whether the release is not on this host yet.
  returned: always
  type: bool
release:
  description: The release.
  returned: always
  type: str
"""

PACKAGE = "trainer"
LOCK_TIMEOUT_SECONDS = 60


class Releases:
    """The releases of the trainer on this host."""

    def __init__(self, directory: Path, release: str, processes: Path = Path("/proc")) -> None:
        """Take the directory that holds `releases/` and `current`."""
        self.folder = directory / "releases"
        self.current = directory / "current"
        self.release = release
        self.target = f"releases/{release}"
        self.processes = processes

    def is_present(self) -> bool:
        """Tell whether the release is there, with the content that its name says."""
        package = self.folder / self.release / PACKAGE
        return package.is_dir() and content_hash(package) == self.release

    def is_current(self) -> bool:
        """Tell whether the link `current` points to the release."""
        return bool(points_to(self.current, self.target))

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
            found = content_hash(partial / PACKAGE)
            if found != self.release:
                shutil.rmtree(partial)
                raise ValueError(f"{archive} holds the release {found}; expected {self.release}")
            for directory in (partial, *partial.rglob("*/")):
                directory.chmod(0o755)
            place = self.folder / self.release
            if place.exists():
                place.rename(self.folder / f".partial-damaged-{self.release}")
            partial.rename(place)
            shutil.rmtree(self.folder / f".partial-damaged-{self.release}", ignore_errors=True)

    def make_current(self) -> None:
        """Let `current` point to the release, in one step."""
        point(self.current, self.target)
        # The newest by time is the one that was current last: that is what pruning keeps.
        (self.folder / self.release).touch()

    def prunable(self, keep: int) -> list[Path]:
        """Return the releases beyond the newest `keep` that are neither current nor used by a process."""
        releases = [path for path in self.folder.glob("[0-9a-f]*") if path.is_dir() and not path.is_symlink()]
        releases.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        old = releases[keep:]
        busy = self._busy() if old else set()
        return [path for path in old if path.name != self.release and path.resolve() not in busy]

    def _busy(self) -> set[Path]:
        """Return the directories that processes work in."""
        return {link.resolve() for link in self.processes.glob("[0-9]*/cwd")}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "release": {"type": "str", "required": True},
            "directory": {"type": "path", "required": True},
            "archive": {"type": "path"},
            "keep": {"type": "int", "default": 3},
        },
        supports_check_mode=True,
    )
    values = module.params
    releases = Releases(Path(values["directory"]), values["release"])
    present, current = releases.is_present(), releases.is_current()
    before = str(releases.current.readlink()) if releases.current.is_symlink() else ""
    try:
        if not present and values["archive"] and not module.check_mode:
            releases.unpack(Path(values["archive"]))
        needs_archive = not present and not values["archive"]
        if not needs_archive and not module.check_mode:
            if not current:
                releases.make_current()
            for path in releases.prunable(values["keep"]):
                shutil.rmtree(path)
    except (OSError, ValueError, tarfile.TarError) as error:
        module.fail_json(msg=f"release {releases.release}: {error}")
    module.exit_json(
        changed=not (present and current),
        needs_archive=needs_archive,
        release=releases.release,
        diff={
            "before": f"{releases.current} -> {before}\n",
            "after": f"{releases.current} -> {releases.target}\n",
        }
        if not current
        else {},
    )


if __name__ == "__main__":
    main()
