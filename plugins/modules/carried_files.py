"""Brings those files of the controller that a host lacks into a directory of the host.

Without `manifest`, the module only returns whether it needs one. Without `archive`, it compares, removes
files that left the manifest, and returns which files are lacking. Files are compared by SHA-256. A record on
the host, with size and time of each carried file, saves reading unchanged files again. A file gets its name
only when it is complete and right. Only root and the `group` may read it, and enter the folders that the
module makes. Files that left the manifest are removed if they are unchanged. Foreign files in the directory
stay; a foreign file with the wanted content is used.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: carried_files
short_description: Brings those files of the controller that a host lacks into a directory of the host
description:
  - Without V(manifest) the module only returns whether it needs one.
  - Without V(archive), it compares, removes files that left the manifest, and returns which files are lacking.
  - Files are compared by SHA-256.
  - A record on the host, with size and time of each carried file, saves reading unchanged files again.
  - A file gets its name only when it is complete and right.
  - Only root and the V(group) may read it, and enter the folders that the module makes.
  - Files that left the manifest are removed if they are unchanged.
  - Foreign files in the directory stay; a foreign file with the wanted content is used.
  - In place of O(digest), O(manifest), O(archive) and O(archive_bytes), the action takes C(index), which
    M(psfleet.cluster.carried_manifest) returned, and carries the files that the host lacks.
author: psfleet (@psfleet)
options:
  directory:
    description: Where the files go; created if missing.
    type: path
    required: true
  records:
    description: The directory on the host in which the records are.
    type: path
    required: true
  group:
    description: The only group that may read the files.
    type: str
    required: true
  digest:
    description: SHA-256 of the manifest, in hexadecimal.
    type: str
    required: true
  manifest:
    description: A JSON file on this host with the size and the SHA-256 of each file.
    type: path
  archive:
    description: A tar archive on this host with parts of files. A part is named V(number.offset); the number is the
      position of the file in the manifest. The parts of a file are in order, without other parts between.
    type: path
  archive_bytes:
    description: The free bytes that the archives need in the home of the user who logs in.
    type: int
    default: 0
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: Copy missing data to the host
  psfleet.cluster.carried_files:
    index: "{{ manifest.index }}"
    directory: /opt/psfleet/data
    records: /opt/psfleet/carried
    group: psfleet
"""

RETURN = r"""
needs_manifest:
  returned: always
  type: bool
  description: Whether the module needs the manifest, because the host's record does not say that this manifest is fulfilled.
lacking:
  returned: with a manifest
  type: list
  description: The positions, in the manifest, of the files that the host lacks; the first file has the position 0.
  elements: int
"""

import hashlib
import json
import os
import shutil
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.carried_record import PARTIAL, CarriedRecord, RecordedFile
from ..module_utils.content_directory import locked
from ..module_utils.disk_space import lacking_space, login_home
from ..module_utils.host.safe_directory import opened, opened_below, parts_of, status_of, write
from ..module_utils.host.task_traces import NO_LINK
from ..module_utils.host.whole_files import BLOCK_BYTES
from ..module_utils.module import make_module
from ..module_utils.private_files import FILE_MODE, group_number, is_private, make_private, private_to

ARGUMENTS: dict[str, Any] = {
    "directory": {"type": "path", "required": True},
    "records": {"type": "path", "required": True},
    "group": {"required": True},
    "digest": {"required": True},
    "manifest": {"type": "path"},
    "archive": {"type": "path"},
    "archive_bytes": {"type": "int", "default": 0},
}


LOCK_TIMEOUT_SECONDS = 900
SHOWN = 5


class Wanted(NamedTuple):
    """A file in the manifest: its size in bytes, and its SHA-256 in hexadecimal."""

    size: int
    sha256: str


class CarriedFiles(CarriedRecord):
    """A directory of this host that should be as the manifest with the SHA-256 `digest` says.

    `group` is the gid of the group that may read the carried files.
    """

    def __init__(self, directory: Path, records: Path, digest: str, group: int) -> None:
        super().__init__(directory, records)
        self.digest, self.group = digest, group

    def is_fulfilled(self) -> bool:
        """Return whether nothing is to be done, judged by the record and the files' sizes, times and rights.

        Files are not read. A missing directory, or another manifest in the record, gives False.
        """
        if self.fulfilled != self.digest:
            return False
        try:
            with opened(self.directory) as root:
                return all(
                    known.is_unchanged(status_of(root, name)) for name, known in self.files.items()
                ) and not (self.public_files())
        except OSError:
            return False

    def public_files(self) -> list[str]:
        """Return the names of carried, unchanged files that are not private to the group (`is_private`).

        Earlier versions of psfleet left them so.
        """
        with self._root() as root:
            return [
                name
                for name, known in self.files.items()
                if root is not None and known.carried and (found := status_of(root, name))
                if known.is_unchanged(found) and not is_private(found, self.group)
            ]

    def make_files_private(self, names: Iterable[str]) -> None:
        """Let only root and the group read these files, and enter folders that have only carried files."""
        with self._root() as root:
            if root is None:
                return
            for name in names:
                *parts, file = parts_of(name)
                with opened_below(root, parts) as here, open_file(here, file) as stream:
                    make_private(stream.fileno(), self.group)
            hidden = {name for name, known in self.files.items() if known.carried}
            folders = {folder for name in names for folder in PurePosixPath(name).parents}
            for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
                with opened_below(root, folder.parts) as here:
                    entries = os.listdir(here)  # noqa: PTH208 - of a descriptor
                    if hidden.issuperset(str(folder / entry) for entry in entries):
                        make_private(here, self.group)
                        hidden.add(str(folder))

    def compare(self, manifest: Mapping[str, Wanted]) -> list[str]:
        """Return the names of the files that the host lacks, in the manifest's order.

        A file that exists with the wanted content is put into the record. `manifest` is {name: wanted file}.
        Raises ValueError if a file that psfleet did not carry, with other content, is in the place of one.
        """
        lacking, foreign = [], []
        with self._root() as root:
            for name, wanted in manifest.items():
                found = status_of(root, name) if root is not None else None
                known = self.files.get(name)
                if known and known.is_unchanged(found) and known.sha256 == wanted.sha256:
                    continue
                if root is not None and found and self._has(root, name, wanted, found):
                    self._record(name, wanted, found, carried=bool(known and known.carried))
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
        return lacking

    def receive(self, archive: Path, manifest: Mapping[str, Wanted]) -> None:
        """Put the files whose parts are in the archive in place, and note them in `files`.

        A member's name is "<position in the manifest>.<offset in the file>". Raises ValueError for a file
        that differs from the manifest; the files before it stay.
        """
        names = list(manifest)
        with opened(self.directory.parent, make=True):  # others may need the folders above
            pass
        with (
            private_to(self.group),
            opened(self.directory, make=True) as root,
            tarfile.open(archive) as stream,
        ):
            for member in stream:
                number, _, offset = member.name.partition(".")
                name = names[int(number)]
                content = stream.extractfile(member)
                if content is None:
                    raise ValueError(f"{archive} holds {member.name}, which is no part of a file")
                if append(root, content, int(offset)) >= manifest[name].size:
                    self._place(root, name, manifest[name])

    def finish(self, manifest: Mapping[str, Wanted]) -> None:
        """Flush all files to the disk, then write the record atomically.

        If `files` has exactly the names of the manifest, the record says that the manifest is fulfilled.
        """
        os.sync()
        digest = self.digest if self.files.keys() == manifest.keys() else ""
        with opened(self.path.parent, make=True) as folder:
            content = json.dumps({"digest": digest, "files": self.files}).encode()
            write(folder, self.path.name, content, 0o600)

    def _has(self, root: int, name: str, wanted: Wanted, found: os.stat_result) -> bool:
        if not stat.S_ISREG(found.st_mode) or found.st_size != wanted.size:
            return False
        *folder, file = parts_of(name)
        with opened_below(root, folder) as here:
            return sha256_of(here, file) == wanted.sha256

    def _is_carried(self, name: str, found: os.stat_result) -> bool:
        """Return whether what is in the place of the file `name` was carried, and may be replaced.

        It may be an older version of the file, or a folder with carried files; `found` is its status.
        """
        if stat.S_ISDIR(found.st_mode):
            return any(known.startswith(f"{name}/") for known in self.files)
        known = self.files.get(name)
        return bool(known and known.carried and stat.S_ISREG(found.st_mode))

    def _record(self, name: str, wanted: Wanted, found: os.stat_result, *, carried: bool) -> None:
        self.files[name] = RecordedFile(found.st_size, found.st_mtime_ns, wanted.sha256, carried)

    def _place(self, root: int, name: str, wanted: Wanted) -> None:
        found = sha256_of(root, PARTIAL)
        if found != wanted.sha256:
            os.unlink(PARTIAL, dir_fd=root)
            raise ValueError(
                f"{name} was changed on the controller or damaged while it was carried: sha256 is {found}, "
                f"expected {wanted.sha256}. Deploy again"
            )
        with open_file(root, PARTIAL) as stream:
            make_private(stream.fileno(), self.group)
        *folder, file = parts_of(name)
        with opened_below(root, folder, make=True) as here:
            os.replace(PARTIAL, file, src_dir_fd=root, dst_dir_fd=here)
            self._record(name, wanted, os.stat(file, dir_fd=here, follow_symlinks=False), carried=True)


def append(root: int, content: IO[bytes], offset: int) -> int:
    """Append a part of a file to the partial file, `.psfleet-partial`; return the partial file's new size.

    `root` is a descriptor of the directory. With `offset` 0 the partial file begins anew. Raises ValueError
    if it does not end at `offset`.
    """
    if offset == 0:
        with suppress(FileNotFoundError):
            os.unlink(PARTIAL, dir_fd=root)
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_CREAT | os.O_EXCL if offset == 0 else 0)
    with os.fdopen(os.open(PARTIAL, flags, FILE_MODE, dir_fd=root), "wb") as out:
        found = os.fstat(out.fileno())
        if (found.st_size, found.st_nlink) != (offset, 1):  # otherwise it may be another file of this name
            raise ValueError(f"the part at {offset} does not follow the one before it")
        out.seek(offset)
        shutil.copyfileobj(content, out, BLOCK_BYTES)
        return out.tell()


@contextmanager
def open_file(folder: int, file: str) -> Iterator[IO[bytes]]:
    """Yield the file with the name `file` in `folder`, a descriptor of a directory, opened for reading.

    Raises ValueError if it is not a regular file, OSError if it is missing or a link.
    """
    with os.fdopen(os.open(file, NO_LINK, dir_fd=folder), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise ValueError(f"{file} is no longer a file")
        yield stream


def sha256_of(folder: int, file: str) -> str:
    """Return the SHA-256, in hexadecimal, of a file in `folder`, a descriptor of a directory.

    Raises the same errors as `open_file`.
    """
    digest = hashlib.sha256()
    with open_file(folder, file) as stream:
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def read_manifest(path: Path, digest: str) -> dict[str, Wanted]:
    """Return {name: wanted file} of the manifest at `path`, in its order.

    Raises ValueError unless the file's SHA-256 is `digest`.
    """
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise ValueError(f"the manifest was damaged on its way: sha256 is {found}, expected {digest}")
    return {name: Wanted(*wanted) for name, wanted in json.loads(content).items()}


def listing(files: Mapping[str, Wanted | RecordedFile]) -> str:
    """Return a text with a line for each file, sorted, for `--diff`: its name, size and SHA-256."""
    return "".join(f"{name} {file.size} bytes {file.sha256}\n" for name, file in sorted(files.items()))


def answer(module: AnsibleModule, carried: CarriedFiles, manifest: Mapping[str, Wanted]) -> dict[str, Any]:
    """Compare the host's files with the manifest, remove files that left it, and return the module's answer.

    The answer has `changed`, `diff` and `lacking`, the positions in the manifest of the files that the host
    lacks. In check mode nothing is removed. If the disk has too little space, the module fails and the
    process ends here.
    """
    lacking = carried.compare(manifest)
    leaving = [name for name in carried.files if name not in manifest]
    if lacking:
        size = sum(manifest[name].size for name in lacking)
        if short := lacking_space((carried.directory, size), (login_home(), module.params["archive_bytes"])):
            module.fail_json(msg=f"Too little space for the data: {short}. Nothing was copied.")
    ours = {name: known for name, known in carried.files.items() if known.carried}
    difference = {
        "before_header": str(carried.directory),
        "after_header": str(carried.directory),
        "before": listing({name: ours[name] for name in (*lacking, *leaving) if name in ours}),
        "after": listing({name: manifest[name] for name in lacking}),
    }
    public_files = carried.public_files()
    if module.check_mode:
        removed = [name for name in leaving if name in ours]
    else:
        removed = carried.remove_carried(leaving)
        carried.make_files_private(public_files)
        carried.finish(manifest)
    places = {name: place for place, name in enumerate(manifest)}
    return {
        "changed": bool(lacking or removed or public_files),
        "lacking": [places[name] for name in lacking],
        "diff": difference if module._diff else {},
    }


def run(module: AnsibleModule) -> None:
    """Compare with the manifest, or put the files of the archive in place, and exit with the answer.

    Without `manifest`, only say whether it is needed.
    """
    values = module.params
    os.umask(0o022)
    directory, records = Path(values["directory"]), Path(values["records"])
    try:
        group = group_number(values["group"], check_mode=module.check_mode)
        if not values["manifest"]:
            fulfilled = CarriedFiles(directory, records, values["digest"], group).is_fulfilled()
            module.exit_json(changed=False, needs_manifest=not fulfilled)
        manifest = read_manifest(Path(values["manifest"]), values["digest"])
        with ExitStack() as stack:
            if not module.check_mode:
                records.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(records / ".lock", LOCK_TIMEOUT_SECONDS))
            carried = CarriedFiles(directory, records, values["digest"], group)
            if values["archive"] and not module.check_mode:
                carried.receive(Path(values["archive"]), manifest)
                carried.finish(manifest)
                module.exit_json(changed=True, needs_manifest=False)
            module.exit_json(needs_manifest=False, **answer(module, carried, manifest))
    except (OSError, ValueError, tarfile.TarError) as error:
        module.fail_json(msg=f"{directory}: {error}")


def main() -> None:
    """Run the module with the arguments from Ansible; exit with its answer, or with a failure."""
    run(make_module(ARGUMENTS))


if __name__ == "__main__":
    main()
