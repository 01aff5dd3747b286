"""Bring a set of directories and files on one host to their described state, in one round trip."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: managed_files
short_description: Bring a set of directories and files to their described state
description:
  - All files are staged and validated before the first of them is replaced; each is replaced by a rename.
  - A file that belongs to another user is written with that user's rights, so that a link in a directory
    of theirs leads nowhere that they could not write themselves.
  - C(owner) is the user that the module runs as unless it is given, C(group) the one of the same name.
options:
  directories:
    description: Directories to make, in this order, each with C(path), and C(owner), C(group), C(mode).
    type: list
    elements: dict
    default: []
  files:
    description:
      - Files to write, each with C(path), C(content), and C(owner), C(group), C(mode).
      - C(validate) is a command line, where C(%s) stands for the staged file. It must exit 0 and print
        nothing on its standard error.
    type: list
    elements: dict
    default: []
  only:
    description:
      - Patterns of paths. A file that one of them matches is removed, unless C(files) or C(kept) names it.
    type: list
    elements: str
    default: []
  kept:
    description: Paths of files that somebody else writes.
    type: list
    elements: str
    default: []
author: psfleet
"""

EXAMPLES = r"""
- name: Write the tasks' environment
  managed_files:
    directories:
      - {path: /etc/psfleet/tasks, mode: "0755"}
    files:
      - {path: /etc/psfleet/tasks/ps-0.env, content: "A=1\n", mode: "0644"}
    only: [/etc/psfleet/tasks/*.env]
"""

RETURN = r"""
changed_paths:
  description: Paths that were made, written or changed.
  returned: always
  type: list
removed_paths:
  description: Paths that were removed.
  returned: always
  type: list
"""

DROP_IN_SUFFIX = ".d"


@dataclass(frozen=True)
class Entry:
    """A directory or file as it is wanted; `content` is None for a directory."""

    path: Path
    owner: str
    group: str
    mode: int
    content: bytes | None = None
    validate: tuple[str, ...] = ()

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], *, directory: bool) -> Entry:
        """Return the entry that a task describes. Raises ValueError where a key is missing or unknown."""
        known = {"path", "owner", "group", "mode"} | (set() if directory else {"content", "validate"})
        unknown = sorted(set(values) - known)
        missing = sorted(({"path"} if directory else {"path", "content"}) - set(values))
        if unknown or missing:
            raise ValueError(f"{values.get('path', values)}: unknown {unknown}, missing {missing}")
        owner = str(values.get("owner", pwd.getpwuid(os.geteuid()).pw_name))
        return cls(
            path=Path(values["path"]),
            owner=owner,
            group=str(values.get("group", owner)),
            mode=int(str(values.get("mode", "0755" if directory else "0644")), 8),
            content=None if directory else str(values["content"]).encode(),
            validate=tuple(values.get("validate", ())),
        )

    @property
    def ids(self) -> tuple[int, int] | None:
        """Numbers of owner and group, or None where this host does not know them."""
        try:
            return pwd.getpwnam(self.owner).pw_uid, grp.getgrnam(self.group).gr_gid
        except KeyError:
            return None

    def is_fulfilled(self) -> bool:
        """Tell whether the host has this already."""
        try:
            found = self.path.lstat()
            if self.content is None:
                matches = self.path.is_dir()
            else:
                matches = self.path.is_file() and self.path.read_bytes() == self.content
        except OSError:
            return False
        return (
            matches
            and not self.path.is_symlink()
            and (found.st_mode & 0o7777) == self.mode
            and (found.st_uid, found.st_gid) == self.ids
        )

    def difference(self) -> dict[str, str]:
        """Return what `--diff` shows."""
        after = self.describe() if self.content is None else self.content.decode(errors="replace")
        return {
            "before_header": str(self.path),
            "after_header": f"{self.path} ({self.describe()})",
            "before": before_text(self.path, directory=self.content is None),
            "after": after,
        }

    def describe(self) -> str:
        """Return owner, group and mode."""
        return f"{self.owner}:{self.group} {self.mode:04o}"


def before_text(path: Path, *, directory: bool) -> str:
    """Return what a path is now, for `--diff`: a directory's owner and mode, or a file's content."""
    try:
        if directory:
            found = path.stat()
            return f"{found.st_uid}:{found.st_gid} {found.st_mode & 0o7777:04o}"
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@contextmanager
def acting_as(ids: tuple[int, int]) -> Iterator[None]:
    """Use the rights of another user and group for a while; only root can, others stay what they are."""
    if os.geteuid() != 0 or ids[0] == 0:
        yield
        return
    groups = os.getgroups()
    os.setgroups([ids[1]])
    os.setegid(ids[1])
    os.seteuid(ids[0])
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def require_ids(entry: Entry) -> tuple[int, int]:
    """Return the numbers of owner and group. Raises ValueError where this host does not know them."""
    if entry.ids is None:
        raise ValueError(f"{entry.path}: this host has no user {entry.owner} or no group {entry.group}")
    return entry.ids


def make_directory(entry: Entry) -> None:
    """Make one directory, or give it its owner and mode."""
    ids = require_ids(entry)
    if entry.path.is_symlink() or (entry.path.exists() and not entry.path.is_dir()):
        raise ValueError(f"{entry.path} is not a directory; move it away")
    entry.path.mkdir(parents=True, exist_ok=True)
    os.chown(entry.path, *ids, follow_symlinks=False)
    entry.path.chmod(entry.mode)


def write_file(entry: Entry) -> None:
    """Write one file beside its place and rename it there. A drop-in's directory is made with it."""
    ids = require_ids(entry)
    if entry.path.parent.suffix == DROP_IN_SUFFIX:
        entry.path.parent.mkdir(exist_ok=True)
    with acting_as(ids):
        handle, temporary = tempfile.mkstemp(prefix=f".{entry.path.name}.", dir=entry.path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(entry.content or b"")
                os.fchmod(stream.fileno(), entry.mode)
                os.fchown(stream.fileno(), *ids)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).replace(entry.path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise


def validate_files(entries: Sequence[Entry]) -> list[str]:
    """Run the validators on staged copies of all files, and return what they object to.

    The copies lie in the same tree under another root, and name each other there: one may refer to another.
    """
    if not any(entry.validate for entry in entries):
        return []
    with tempfile.TemporaryDirectory() as root:
        stage(entries, Path(root))
        return [problem for entry in entries if entry.validate and (problem := objection(entry, Path(root)))]


def stage(entries: Sequence[Entry], root: Path) -> None:
    """Write a copy of each file below `root`."""
    paths = sorted((str(entry.path) for entry in entries), key=len, reverse=True)
    for entry in entries:
        content = entry.content or b""
        for path in paths:
            content = content.replace(path.encode(), f"{root}{path}".encode())
        copy = Path(f"{root}{entry.path}")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)


def objection(entry: Entry, root: Path) -> str:
    """Run the validator of one file on its copy; return what it said, or an empty string."""
    command = [part.replace("%s", f"{root}{entry.path}") for part in entry.validate]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # A unit of somebody else may be warned of, too: that is not ours to refuse.
    said = "\n".join(
        line for line in done.stderr.strip().splitlines() if done.returncode or str(root) in line
    )
    if not done.returncode and not said:
        return ""
    said = said or done.stdout.strip() or f"exit code {done.returncode}"
    return f"{entry.path}: {' '.join(entry.validate)}: {said.replace(str(root), '')}"


def extra_paths(entries: Sequence[Entry], patterns: Sequence[str], kept: Sequence[str]) -> list[Path]:
    """Return the files that a pattern matches, that no entry names and that are not kept."""
    named = {entry.path for entry in entries} | {Path(path) for path in kept}
    found = {path for pattern in patterns for path in Path("/").glob(pattern.lstrip("/"))}
    return sorted(path for path in found - named if path.is_symlink() or not path.is_dir())


def parse(parameters: Mapping[str, Any]) -> tuple[list[Entry], list[Entry]]:
    """Return the directories and files that a task describes. Raises ValueError with what is wrong."""
    directories = [Entry.from_mapping(values, directory=True) for values in parameters["directories"]]
    files = [Entry.from_mapping(values, directory=False) for values in parameters["files"]]
    return directories, files


def apply(directories: Sequence[Entry], files: Sequence[Entry], removed: Sequence[Path]) -> None:
    """Change the host. Raises ValueError, before any file is replaced, where a validator objects."""
    for entry in directories:
        make_directory(entry)
    for entry in files:
        write_file(entry)
    for path in removed:
        path.unlink(missing_ok=True)
        if path.parent.suffix == DROP_IN_SUFFIX and not any(path.parent.iterdir()):
            path.parent.rmdir()


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "dict", "default": []},
            "files": {"type": "list", "elements": "dict", "default": []},
            "only": {"type": "list", "elements": "str", "default": []},
            "kept": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    try:
        directories, files = parse(module.params)
        removed = extra_paths(files, module.params["only"], module.params["kept"])
        wanted_directories = [entry for entry in directories if not entry.is_fulfilled()]
        wanted_files = [entry for entry in files if not entry.is_fulfilled()]
        wanted = [*wanted_directories, *wanted_files]
        difference = [entry.difference() for entry in wanted] + [
            {"before_header": str(path), "before": before_text(path, directory=False), "after": ""}
            for path in removed
        ]
        if not module.check_mode:
            # All files are staged, also those that stay: a changed one may refer to them.
            problems = validate_files(files) if wanted_files else []
            if problems:
                module.fail_json(msg="Nothing was written. " + "\n".join(problems))
            apply(wanted_directories, wanted_files, removed)
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=bool(wanted or removed),
        changed_paths=[str(entry.path) for entry in wanted],
        removed_paths=[str(path) for path in removed],
        diff=difference,
    )


if __name__ == "__main__":
    main()
