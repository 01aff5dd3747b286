"""Makes directories and files of one host as the arguments describe them, in one call.

All files are staged and validated before the first file is replaced; each is replaced by a rename. No link is
followed that a user other than root could have put there. A file of another user is read and written with
that user's rights, and so is a directory below a directory that is not root's.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: files
short_description: Make directories, write files and remove others, in one call
description:
  - Several files in one call, where M(ansible.builtin.template) and M(ansible.builtin.copy) need
    two calls for each.
  - All files are validated, as if they were in their places, before any of them is replaced.
  - A file takes its place by a rename. No link is followed that a user other than root could have
    made.
author: psfleet (@psfleet)
options:
  directories:
    description: Directories to make, in this order.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Where the directory is.
        type: str
        required: true
      owner:
        description: The user that owns it. By default the user that the module runs as.
        type: str
      group:
        description: The group that owns it. By default, the group with the name of O(directories[].owner); without an
          owner, the group that the module runs as.
        type: str
      mode:
        description: Its permissions.
        type: str
        default: '0755'
  files:
    description: Files to write.
    type: list
    elements: dict
    default: []
    suboptions:
      dest:
        description: Where the file is. If it is a drop-in, its directory is made, too.
        type: str
        required: true
      src:
        description: A template of the role or the playbook, as for M(ansible.builtin.template). Either
          this or O(files[].content).
        type: str
      vars:
        description: Further variables of the template.
        type: dict
        default: {}
      content:
        description: The whole content.
        type: str
      encoding:
        description: V(base64) if the content is not text.
        type: str
        choices:
          - text
          - base64
        default: text
      owner:
        description: As of a directory.
        type: str
      group:
        description: As of a directory.
        type: str
      mode:
        description: Its permissions.
        type: str
        default: '0644'
      validate:
        description:
          - A command that must exit with 0 and print nothing on its standard error. V(%s) is replaced by the path of the
            new file.
          - It runs without a shell, as the command of M(ansible.builtin.template) does.
        type: str
  only:
    description: Patterns of paths. A file that matches one of them is removed, unless O(files) or O(kept) has its path.
    type: list
    elements: str
    default: []
  kept:
    description: Paths of files that are not removed even if they match O(only).
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: It says what would change.
  diff_mode:
    support: full
    description: It shows the contents before and after.
"""

EXAMPLES = r"""
- name: Write a unit and the defaults that it reads
  psfleet.cluster.files:
    directories:
      - {path: /etc/exporter}
    files:
      - {dest: /etc/exporter/defaults, content: "PORT={{ exporter_port }}\n"}
      - {dest: /etc/systemd/system/exporter.service, src: exporter.service.j2, validate: systemd-analyze verify %s}
    only: [/etc/exporter/*]
  notify: Restart the exporter
"""

RETURN = r"""
changed_paths:
  returned: success
  type: list
  elements: str
  description: Paths that were made, written or changed.
removed_paths:
  returned: success
  type: list
  elements: str
  description: Paths that were removed.
"""

import base64
import fnmatch
import grp
import os
import pwd
import re
import shlex
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host.safe_directory import is_ours_alone, opened, opened_below, write
from ..module_utils.host.safe_directory import remove as remove_below
from ..module_utils.host.task_traces import bytes_of
from ..module_utils.module import make_module

_OWNED: dict[str, Any] = {"owner": {}, "group": {}}
ARGUMENTS: dict[str, Any] = {
    "directories": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"path": {"required": True}, **_OWNED, "mode": {"default": "0755"}},
    },
    "files": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "dest": {"required": True},
            "src": {},
            "vars": {"type": "dict", "default": {}},
            "content": {},
            "encoding": {"choices": ["text", "base64"], "default": "text"},
            **_OWNED,
            "mode": {"default": "0644"},
            "validate": {},
        },
        "required_one_of": [("src", "content")],
        "mutually_exclusive": [("src", "content")],
    },
    "only": {"type": "list", "elements": "str", "default": []},
    "kept": {"type": "list", "elements": "str", "default": []},
}

DROP_IN_SUFFIX = ".d"
ROOT = (0, 0)
MOST_SHOWN = 1_000_000


@dataclass(frozen=True)
class Entry:
    """A directory or file as it is wanted.

    - `mode`: its permissions. `owner`, `group`: names.
    - `content`: None for a directory.
    - `validate`: the words of the command that validates the file, "%s" in place of its path; () for none.
    """

    path: Path
    mode: int
    owner: str
    group: str
    content: bytes | None = None
    validate: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Entry:
        """Return the entry for an element of `directories` or `files`.

        Without `owner` it is this process's user. Without `group` it is the group with the name of `owner`;
        without both, this process's group.
        """
        owner, group = values.get("owner"), values.get("group") or values.get("owner")
        encoded = base64.b64decode if values.get("encoding") == "base64" else str.encode
        return cls(
            path=Path(values.get("dest") or values["path"]),
            mode=int(values["mode"], 8),
            owner=owner or pwd.getpwuid(os.geteuid()).pw_name,
            group=group or grp.getgrgid(os.getegid()).gr_name,
            content=encoded(values["content"]) if "dest" in values else None,
            validate=tuple(shlex.split(values.get("validate") or "")),
        )

    @property
    def ids(self) -> tuple[int, int]:
        """(uid of the owner, gid of the group). Raises ValueError if this host does not know them."""
        try:
            return pwd.getpwnam(self.owner).pw_uid, grp.getgrnam(self.group).gr_gid
        except KeyError:
            raise ValueError(
                f"{self.path}: this host has no user {self.owner} or no group {self.group}"
            ) from None

    def is_fulfilled(self) -> bool:
        """Return whether the directory or file exists with this mode, owner, group and content.

        A link to it does not count.
        """
        kind = stat.S_ISDIR if self.content is None else stat.S_ISREG
        try:
            wanted, status = (self.mode, *self.ids), self.current_status()
        except (OSError, ValueError):
            return False
        if not kind(status.st_mode) or (status.st_mode & 0o7777, status.st_uid, status.st_gid) != wanted:
            return False
        return self.content is None or bytes_of(self.path, most=len(self.content) + 1) == self.content

    def current_status(self) -> os.stat_result:
        """Return the status of what is at the path now; no link is followed.

        Raises OSError if there is nothing, and ValueError if a user other than root made a link in the path.
        """
        with opened(self.path.parent) as folder:
            return os.stat(self.path.name, dir_fd=folder, follow_symlinks=False)

    def difference(self) -> dict[str, str]:
        """Return `before`, `after`, `before_header` and `after_header`, for `--diff`.

        `before` and `after` are the texts of a file, or owner, group and mode of a directory, such as "0:0
        0755"; `before` is "" if there is nothing, or if the owner may not read it.
        """
        wanted, before = f"{self.owner}:{self.group} {self.mode:04o}", ""
        with suppress(OSError, ValueError):
            if self.content is None:
                status = self.current_status()
                before = f"{status.st_uid}:{status.st_gid} {status.st_mode & 0o7777:04o}"
            else:
                with acting_as(self.ids):  # show only what its owner can read
                    before = text_of(self.path)
        return {
            "before_header": str(self.path),
            "after_header": f"{self.path} ({wanted})",
            "before": before,
            "after": wanted if self.content is None else self.content.decode(errors="replace"),
        }

    def apply(self) -> None:
        """Create or correct the directory; or write the file beside its place, and rename it to its place.

        The directory of a drop-in (its name ends with ".d") is created, too. Raises OSError and ValueError.
        """
        ids, parent = self.ids, self.path.parent
        if self.content is None:
            with opened(parent, make=True) as folder, acting_as(ROOT if is_ours_alone(folder) else ids):
                self._make_directory(folder, ids)
            return
        with opened(parent, make=parent.suffix == DROP_IN_SUFFIX) as folder, acting_as(ids):
            write(folder, self.path.name, self.content, self.mode, ids)

    def _make_directory(self, folder: int, ids: tuple[int, int]) -> None:
        with suppress(FileExistsError):
            os.mkdir(self.path.name, self.mode, dir_fd=folder)
        try:
            with opened_below(folder, [self.path.name]) as directory:
                os.fchown(directory, *ids)
                os.fchmod(directory, self.mode)
        except ValueError:
            raise ValueError(f"{self.path} is not a directory; move it away") from None
        except PermissionError:
            raise ValueError(f"{self.path} does not belong to {self.owner}; move it away") from None


def text_of(path: Path) -> str:
    """Return the first MOST_SHOWN bytes of a file, as text, for `--diff`; "" if it does not exist.

    No link is followed that a user other than root could have made.
    """
    return bytes_of(path, most=MOST_SHOWN).decode(errors="replace")


@contextmanager
def acting_as(ids: tuple[int, int]) -> Iterator[None]:
    """During the block, act with the rights of the uid and gid in `ids`, if this process is root's.

    With the uid 0, or for another user, nothing changes.
    """
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


def validate_files(entries: Sequence[Entry]) -> list[str]:
    """Run the validators on copies of all files; return a text for each file that is rejected, [] for none.

    The copies lie in the same tree under another root and refer to each other there, because one file may
    name another.
    """
    validated = [entry for entry in entries if entry.validate]
    if not validated:
        return []
    paths = b"|".join(re.escape(bytes(entry.path)) for entry in entries)
    with tempfile.TemporaryDirectory() as root:
        for entry in entries:
            copy = Path(f"{root}{entry.path}")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(re.sub(paths, root.encode() + rb"\g<0>", entry.content or b""))
        return [problem for entry in validated if (problem := objection(entry, root))]


def objection(entry: Entry, root: str) -> str:
    """Run the validator of one file on its copy below `root`; return "", or why it rejects the file."""
    command = [part.replace("%s", f"{root}{entry.path}") for part in entry.validate]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # It may also warn about a foreign unit, which is no reason to refuse ours.
    objection_text = "\n".join(
        line for line in done.stderr.strip().splitlines() if done.returncode or root in line
    )
    if not done.returncode and not objection_text:
        return ""
    objection_text = objection_text or done.stdout.strip() or f"exit code {done.returncode}"
    return f"{entry.path}: {' '.join(entry.validate)}: {objection_text.replace(root, '')}"


def extra_paths(entries: Sequence[Entry], patterns: Sequence[str], kept: Sequence[str]) -> list[Path]:
    """Return the existing files that match a pattern, sorted, without those of `entries` and `kept`."""
    named = {entry.path for entry in entries} | {Path(path) for path in kept}
    return sorted({path for pattern in patterns for path in matching(Path(pattern))} - named)


def matching(pattern: Path) -> Iterator[Path]:
    """Yield the path of each file that matches an absolute pattern, in no order; folders are left out.

    A folder that a part with "*", "?" or "[" matches must not be a link.
    """
    plain = next(place for place in pattern.parents if not set("*?[") & set(str(place)))
    with suppress(FileNotFoundError), opened(plain) as folder:
        yield from _matching(folder, plain, pattern.relative_to(plain).parts)


def _matching(folder: int, path: Path, parts: Sequence[str]) -> Iterator[Path]:
    for name in fnmatch.filter(os.listdir(folder), parts[0]):
        if len(parts) > 1:
            with suppress(OSError, ValueError), opened_below(folder, [name]) as below:
                yield from _matching(below, path / name, parts[1:])
        elif not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            yield path / name


def remove(path: Path) -> None:
    """Remove a file; do nothing if it does not exist.

    If it is a drop-in, also remove its directory if that is empty then.
    """
    root = path.parents[1 if path.parent.suffix == DROP_IN_SUFFIX else 0]
    with suppress(FileNotFoundError), opened(root) as folder:
        remove_below(folder, str(path.relative_to(root)))


def run(module: AnsibleModule) -> None:
    """Make the directories and files, remove the files that `only` finds, and exit with the answer.

    Nothing is written if a validator rejects a file. In check mode, the answer has what would be changed.
    """
    try:
        files = [Entry.of(values) for values in module.params["files"]]
        removed = extra_paths(files, module.params["only"], module.params["kept"])
        wanted = [
            entry
            for entry in (*map(Entry.of, module.params["directories"]), *files)
            if not entry.is_fulfilled()
        ]
        difference = [entry.difference() for entry in wanted] + [
            {"before_header": str(path), "before": text_of(path), "after": ""} for path in removed
        ]
        if not module.check_mode:
            # Unchanged files are staged, too, because a changed one may refer to them.
            changing = any(entry.content is not None for entry in wanted)
            if changing and (problems := validate_files(files)):
                module.fail_json(msg="Nothing was written. " + "\n".join(problems))
            for entry in wanted:
                entry.apply()
            for path in removed:
                remove(path)
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=bool(wanted or removed),
        changed_paths=[str(entry.path) for entry in wanted],
        removed_paths=[str(path) for path in removed],
        diff=difference,
    )


def main() -> None:
    """Run the module with the arguments from Ansible; exit with its answer, or with a failure."""
    run(make_module(ARGUMENTS))


if __name__ == "__main__":
    main()
