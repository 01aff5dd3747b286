"""Bring files of the controller into a directory of one host: those that lack, and no others."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.carried_record import Known, Record, Wanted, read_manifest
from ansible.module_utils.content_directory import BLOCK_BYTES, locked
from ansible.module_utils.disk_space import lacking_space, login_home
from ansible.module_utils.safe_directory import find, opened, opened_below, parts_of, remove

DOCUMENTATION = r"""
module: carried_files
short_description: Bring files of the controller into a directory of this host
description:
  - Files are compared by SHA-256. A record on the host of what was carried, with size and time of each file,
    saves reading those that have not changed since.
  - Each file appears under its name when it is whole and right. It is the module's user's, readable by all.
  - Files that left the manifest are removed when they are as they were put there. What somebody else put into
    the directory is never changed; a file with the content that is wanted is left where it is.
options:
  directory:
    description: Directory on this host. It is made where it lacks.
    type: path
    required: true
  records:
    description: Directory on this host for the records of what was carried, one for each directory.
    type: path
    required: true
  digest:
    description: SHA-256 of the manifest.
    type: str
    required: true
  manifest:
    description:
      - JSON file on this host, which maps the path of each file below the directory to its size and SHA-256.
      - Without it the module only says whether it needs one.
    type: path
  archive:
    description:
      - A tar archive on this host with parts of files, named C(number.offset) by the place of the file in the
        manifest. The parts of a file come in order, and no other file between them.
      - Without it the module compares, removes what has to go, and says what lacks.
    type: path
  archive_bytes:
    description: Room that archives need in the home of the connecting user.
    type: int
    default: 0
author: psfleet
"""

EXAMPLES = r"""
- name: Ask what lacks
  carried_files:
    directory: /opt/psfleet/data
    records: /opt/psfleet/carried
    digest: 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03
    manifest: /var/tmp/manifest.json
"""

RETURN = r"""
needs_manifest:
  description: Whether the module cannot answer without the manifest.
  returned: always
  type: bool
lacking:
  description: The places in the manifest of the files that are to be carried.
  returned: with a manifest
  type: list
removed:
  description: How many files are removed.
  returned: with a manifest
  type: int
"""

PARTIAL = ".psfleet-partial"
LOCK_TIMEOUT_SECONDS = 900
FILE_MODE = 0o644
SHOWN = 5


@dataclass(frozen=True)
class Comparison:
    """What lacks, in the manifest's order, and what has to go."""

    lacking: list[str]
    leaving: list[str]


class CarriedFiles:
    """A directory of this host and the record of what was carried into it."""

    def __init__(self, directory: Path, records: Path, digest: str) -> None:
        """Read the record, which the directory's path names."""
        self.directory = directory
        self.path = records / f"{hashlib.sha256(bytes(directory)).hexdigest()[:16]}.json"
        self.digest = digest
        self.record = Record.read(self.path)

    def is_fulfilled(self) -> bool:
        """Tell from the record, and from the files' sizes and times, whether nothing is to be done."""
        if self.record.digest != self.digest:
            return False
        try:
            with opened(self.directory) as root:
                return all(known.is_still(find(root, name)) for name, known in self.record.files.items())
        except OSError:
            return False

    def compare(self, manifest: Mapping[str, Wanted]) -> Comparison:
        """Return what is to be done, and take into the record what is right already.

        Raises ValueError where somebody else's file is in the way.
        """
        lacking, foreign = [], []
        with self._root() as root:
            for name, wanted in manifest.items():
                found = find(root, name) if root is not None else None
                known = self.record.files.get(name)
                if known is None or not known.is_still(found) or known.sha256 != wanted.sha256:
                    if root is not None and self._has(root, name, wanted, found):
                        self._take(name, wanted, found, carried=known is not None and known.carried)
                    elif found is None or self._is_carried(name, found):
                        lacking.append(name)
                    else:
                        foreign.append(name)
        if foreign:
            raise ValueError(
                f"{len(foreign)} files are in the way: psfleet did not put them there, and they are not "
                f"those to be carried: {', '.join(foreign[:SHOWN])}. Move them away, or carry to another "
                "directory (trainer_data_dir)"
            )
        return Comparison(lacking, [name for name in self.record.files if name not in manifest])

    def leave(self, names: list[str]) -> list[str]:
        """Remove what was carried and is still as it was; forget the others. Return what was removed."""
        removed = []
        with self._root() as root:
            for name in names:
                known = self.record.files.pop(name)
                if root is not None and known.carried and known.is_still(find(root, name)):
                    remove(root, name)
                    removed.append(name)
        return removed

    def receive(self, archive: Path, manifest: Mapping[str, Wanted]) -> None:
        """Put the files of an archive in place. Raises ValueError for one that is not as in the manifest."""
        names = list(manifest)
        with opened(self.directory, make=True) as root, tarfile.open(archive) as stream:
            for member in stream:
                number, _, offset = member.name.partition(".")
                name = names[int(number)]
                content = stream.extractfile(member)
                if content is None:
                    raise ValueError(f"{archive} holds {member.name}, which is no part of a file")
                size = append(root, content, int(offset))
                if size >= manifest[name].size:
                    self._place(root, name, manifest[name])

    def finish(self, manifest: Mapping[str, Wanted]) -> None:
        """Write the record; where every file is there, also that the manifest is fulfilled."""
        self.record.digest = self.digest if self.record.files.keys() == manifest.keys() else ""
        self.record.write(self.path)

    @contextmanager
    def _root(self) -> Iterator[int | None]:
        """Give a descriptor of the directory, None where it is not there yet."""
        try:
            with opened(self.directory) as root:
                yield root
        except FileNotFoundError:
            yield None

    def _has(self, root: int, name: str, wanted: Wanted, found: os.stat_result | None) -> bool:
        if found is None or not stat.S_ISREG(found.st_mode) or found.st_size != wanted.size:
            return False
        *folder, file = parts_of(name)
        with opened_below(root, folder) as here:
            return bool(sha256_of(here, file) == wanted.sha256)

    def _is_carried(self, name: str, found: os.stat_result) -> bool:
        """Tell whether what is there in place of a file was carried: another file, or a folder of others."""
        if stat.S_ISDIR(found.st_mode):
            return any(known.startswith(f"{name}/") for known in self.record.files)
        known = self.record.files.get(name)
        return known is not None and bool(known.carried) and stat.S_ISREG(found.st_mode)

    def _take(self, name: str, wanted: Wanted, found: os.stat_result | None, *, carried: bool) -> None:
        if found is not None:
            self.record.files[name] = Known(found.st_size, found.st_mtime_ns, wanted.sha256, carried)

    def _place(self, root: int, name: str, wanted: Wanted) -> None:
        found = sha256_of(root, PARTIAL)
        if found != wanted.sha256:
            os.unlink(PARTIAL, dir_fd=root)
            raise ValueError(
                f"{name} was changed on the controller or damaged while it was carried: sha256 is {found}, "
                f"expected {wanted.sha256}. Deploy again"
            )
        *folder, file = parts_of(name)
        with opened_below(root, folder, make=True) as here:
            os.replace(PARTIAL, file, src_dir_fd=root, dst_dir_fd=here)
            self._take(name, wanted, os.stat(file, dir_fd=here, follow_symlinks=False), carried=True)


def append(root: int, content: Any, offset: int) -> int:  # noqa: ANN401 - a stream of bytes
    """Write a part of a file at its place in the partial file, and return the size that it has then."""
    if offset == 0:
        with suppress(FileNotFoundError):
            os.unlink(PARTIAL, dir_fd=root)
    flags = os.O_WRONLY | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if offset == 0 else 0)
    with os.fdopen(os.open(PARTIAL, flags, FILE_MODE, dir_fd=root), "wb") as out:
        if os.fstat(out.fileno()).st_size != offset:
            raise ValueError(f"the part at {offset} does not follow the one before it")
        out.seek(offset)
        shutil.copyfileobj(content, out, BLOCK_BYTES)
        os.fchmod(out.fileno(), FILE_MODE)
        return out.tell()


def sha256_of(folder: int, file: str) -> str:
    """Return the SHA-256 of a file in an opened directory."""
    digest = hashlib.sha256()
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder), "rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def difference(carried: CarriedFiles, manifest: Mapping[str, Wanted], compared: Comparison) -> dict[str, str]:
    """Return what `--diff` shows: the files that come, change or go, with size and SHA-256."""
    before: dict[str, Wanted | Known] = {
        name: known
        for name in [*compared.lacking, *compared.leaving]
        if (known := carried.record.files.get(name)) and known.carried
    }
    after: dict[str, Wanted | Known] = {name: manifest[name] for name in compared.lacking}
    return {
        "before_header": str(carried.directory),
        "after_header": str(carried.directory),
        "before": listing(before),
        "after": listing(after),
    }


def listing(files: Mapping[str, Wanted | Known]) -> str:
    """Return a line for each file."""
    return "".join(f"{name} {file.size} bytes {file.sha256}\n" for name, file in sorted(files.items()))


def answer(module: AnsibleModule, carried: CarriedFiles, manifest: Mapping[str, Wanted]) -> dict[str, Any]:
    """Compare, and let go what has to; return what the module says."""
    compared = carried.compare(manifest)
    lacking = set(compared.lacking)
    if lacking:
        size = sum(manifest[name].size for name in lacking)
        needed = {carried.directory: size}
        home = login_home()
        short = lacking_space(needed | {home: module.params["archive_bytes"] + needed.get(home, 0)})
        if short:
            module.fail_json(msg=f"Too little space for the data: {short}. Nothing was copied.")
    shown = difference(carried, manifest, compared) if module._diff else {}
    if module.check_mode:
        known = carried.record.files
        removed = [name for name in compared.leaving if known[name].carried]
    else:
        removed = carried.leave(compared.leaving)
        carried.finish(manifest)
    return {
        "changed": bool(lacking or removed),
        "lacking": [place for place, name in enumerate(manifest) if name in lacking],
        "removed": len(removed),
        "diff": shown,
    }


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "records": {"type": "path", "required": True},
            "digest": {"type": "str", "required": True},
            "manifest": {"type": "path"},
            "archive": {"type": "path"},
            "archive_bytes": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    values = module.params
    os.umask(0o022)
    records = Path(values["records"])
    try:
        if not values["manifest"]:
            fulfilled = CarriedFiles(Path(values["directory"]), records, values["digest"]).is_fulfilled()
            module.exit_json(changed=False, needs_manifest=not fulfilled)
        manifest = read_manifest(Path(values["manifest"]), values["digest"])
        if module.check_mode:
            carried = CarriedFiles(Path(values["directory"]), records, values["digest"])
            module.exit_json(needs_manifest=False, **answer(module, carried, manifest))
        records.mkdir(parents=True, exist_ok=True)
        with locked(records / ".lock", LOCK_TIMEOUT_SECONDS):
            carried = CarriedFiles(Path(values["directory"]), records, values["digest"])
            if values["archive"]:
                carried.receive(Path(values["archive"]), manifest)
                carried.finish(manifest)
                module.exit_json(changed=True, needs_manifest=False)
            module.exit_json(needs_manifest=False, **answer(module, carried, manifest))
    except (OSError, ValueError, tarfile.TarError) as error:
        module.fail_json(msg=f"{values['directory']}: {error}")


if __name__ == "__main__":
    main()
