"""Download the wheels of a lock once into a cache of the controller, and pack them for the hosts."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the plugins are not installed

from plugins.module_utils.content_directory import HASH_DIGITS, file_sha256, locked

display = Display()

# glibc 2.28 is older than that of every supported host; a wheel may be made for any older one.
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(28, 16, -1)] + ["manylinux2014_x86_64"]
LOCK_TIMEOUT_SECONDS = 1800
REPORT_SECONDS = 5
MEGABYTE = 1_000_000
PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
REFUSED = re.compile(
    r"^\s+(?P<name>[A-Za-z0-9._-]+==\S+).*?"
    r"Expected sha256 (?P<expected>[0-9a-f]{64}).*?Got\s+(?P<got>[0-9a-f]{64})",
    re.DOTALL | re.MULTILINE,
)


class ActionModule(ActionBase):
    """Arguments: `requirements` and `installer` (locks), `python_version`, `cache_directory`.

    Runs on the controller alone. Returns `lock_hash`, `archive`, `archive_sha256` and `archive_bytes`.
    In check mode nothing is downloaded, and an archive that is not there yet has neither hash nor size.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return where the archive is; make it first where it is not there."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = self._task.args
        store = WheelStore(
            requirements=Path(arguments["requirements"]),
            installer=Path(arguments["installer"]),
            python_version=str(arguments["python_version"]),
            cache=Path(arguments["cache_directory"]).expanduser(),
        )
        changed = not store.archive.exists()
        if changed and not self._task.check_mode:
            try:
                store.fill(display.display)
            except (OSError, ValueError) as error:
                raise AnsibleActionFail(str(error)) from error
        return result | {"changed": changed} | store.describe()


@dataclass(frozen=True)
class WheelStore:
    """The wheels of one lock in a cache that several clones share."""

    requirements: Path
    installer: Path
    python_version: str
    cache: Path

    @property
    def lock_hash(self) -> str:
        """The first 12 hex digits of the SHA-256 of both locks: it names the environment, too."""
        content = self.requirements.read_bytes() + self.installer.read_bytes()
        return hashlib.sha256(content).hexdigest()[:HASH_DIGITS]

    @property
    def folder(self) -> Path:
        """Where the finished archive is."""
        return self.cache / "wheels" / self.lock_hash

    @property
    def archive(self) -> Path:
        """The finished archive: it is there entire, or not at all."""
        return self.folder / f"wheels-{self.lock_hash}.tar"

    def describe(self) -> dict[str, Any]:
        """Return what the other roles need to know."""
        known = self.archive.exists()
        digest = self.archive.with_suffix(".sha256")
        return {
            "lock_hash": self.lock_hash,
            "archive": str(self.archive),
            "archive_sha256": digest.read_text(encoding="utf-8").strip() if known else "",
            "archive_bytes": self.archive.stat().st_size if known else 0,
        }

    def fill(self, say: Callable[[str], None]) -> None:
        """Download, verify and pack the wheels. What an interrupted download has left is used again.

        Raises ValueError where a wheel cannot be had or is not the locked one, OSError where the disk fails.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        partial = self.folder.with_suffix(".partial")
        with locked(self.folder.parent / f".{self.lock_hash}.lock", LOCK_TIMEOUT_SECONDS):
            if self.archive.exists():  # another clone was faster
                return
            wheels = partial / "wheels"
            wheels.mkdir(parents=True, exist_ok=True)
            self.download(wheels, say)
            verify(wheels, [self.requirements, self.installer])
            finished = partial / "finished"
            finished.mkdir(exist_ok=True)
            archive = finished / self.archive.name
            pack(wheels, self.requirements, archive)
            archive.with_suffix(".sha256").write_text(f"{file_sha256(archive)}\n", encoding="utf-8")
            finished.rename(self.folder)
            shutil.rmtree(partial)

    def download(self, wheels: Path, say: Callable[[str], None]) -> None:
        """Let pip download every wheel of both locks into `wheels`. Raises ValueError with what pip said."""
        if importlib.util.find_spec("pip") is None:
            raise ValueError(
                f"{sys.executable} has no pip, which downloads the wheels. Install the controller's "
                "requirements again: make setup"
            )
        command = download_command(self.python_version, [self.requirements, self.installer], wheels)
        count = len(PINNED.findall(self.requirements.read_text(encoding="utf-8"))) + 1
        say(f"Download {count} wheels to {self.folder.parent}, once ...")
        started = reported = time.monotonic()
        partial = wheels.parent
        temporary, log = partial / "temporary", partial / "pip.log"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        with log.open("w", encoding="utf-8") as stream:
            process = subprocess.Popen(
                command, stdout=stream, stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": str(temporary)}
            )
            while process.poll() is None:
                time.sleep(0.2)
                if time.monotonic() - reported >= REPORT_SECONDS:
                    reported = time.monotonic()
                    say(f"  {megabytes(temporary)} MB, {reported - started:.0f} s")
        if process.returncode:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            tail = "\n".join(line for line in lines if not line.startswith(("Collecting", "Saved", "  ")))
            raise ValueError(
                f"The wheels of {self.requirements} could not be downloaded; nothing was installed. "
                f"{explain(log)}pip said:\n{tail[-2000:]}"
            )
        say(f"  {megabytes(wheels)} MB, {time.monotonic() - started:.0f} s")


def download_command(python_version: str, locks: Sequence[Path], wheels: Path) -> list[str]:
    """Return pip's command line for the wheels of hosts that may have another Python than the controller."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", "--no-input", "--disable-pip-version-check"]
    # Its own cache keeps what an interrupted download has finished.
    command += [f"--cache-dir={wheels.parent / 'cache'}"]
    command += ["--implementation=cp", f"--python-version={python_version}", f"--dest={wheels}"]
    command += [f"--abi={abi}" for abi in (f"cp{python_version.replace('.', '')}", "abi3", "none")]
    command += [f"--platform={platform}" for platform in PLATFORMS]
    return command + [f"--requirement={lock}" for lock in locks]


def megabytes(folder: Path) -> int:
    """Return the size of the files below a folder that another program is filling."""
    return sum(size_or_zero(path) for path in folder.rglob("*")) // MEGABYTE


def size_or_zero(path: Path) -> int:
    """Return a file's size; 0 where it was moved meanwhile."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def explain(log: Path) -> str:
    """Return the file and both hashes where pip refused a wheel, else nothing."""
    text = log.read_text(encoding="utf-8", errors="replace")
    found = REFUSED.search(text)
    if found is None:
        return ""
    return f"{found['name']}: sha256 is {found['got']}, the lock expects {found['expected']}.\n"


def locked_hashes(lock: Path) -> dict[str, set[str]]:
    """Return the hashes that a lock allows, by the name of the package as wheels are named."""
    text = lock.read_text(encoding="utf-8")
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)
    allowed = {}
    for block in blocks:
        pinned = PINNED.match(block)
        if pinned:
            allowed[normalized(pinned["name"])] = set(HASH.findall(block))
    return allowed


def normalized(name: str) -> str:
    """Return a package's name in the one spelling that stands for all of them."""
    return re.sub(r"[-_.]+", "_", name).lower()


def verify(wheels: Path, locks: Sequence[Path]) -> None:
    """Compare every wheel with its lock.

    Raises ValueError with the file and both hashes, or with the packages whose wheels are missing.
    """
    allowed: dict[str, set[str]] = {}
    for lock in locks:
        allowed.update(locked_hashes(lock))
    missing = dict(allowed)
    for wheel in sorted(wheels.glob("*.whl")):
        name = normalized(wheel.name.split("-")[0])
        found = file_sha256(wheel)
        if found not in allowed.get(name, set()):
            expected = " or ".join(sorted(allowed.get(name, set()))) or "no such package"
            raise ValueError(
                f"{wheel} is not what {locks[0]} asks for; nothing was installed. sha256 is {found}, "
                f"the lock expects {expected}. Remove the file to download it again."
            )
        missing.pop(name, None)
    if missing:
        raise ValueError(f"no wheel was downloaded for {', '.join(sorted(missing))} of {locks[0]}")


def pack(wheels: Path, requirements: Path, archive: Path) -> None:
    """Write the wheels, the lock and the program `uv` into one tar archive. Wheels are compressed already."""
    installer = next(wheels.glob("uv-*.whl"))
    with tarfile.open(archive, "w") as stream:
        for wheel in sorted(wheels.glob("*.whl")):
            if wheel != installer:
                stream.add(wheel, arcname=f"wheels/{wheel.name}", recursive=False, filter=plain)
        stream.add(requirements, arcname="requirements.txt", recursive=False, filter=plain)
        with zipfile.ZipFile(installer) as content:
            name = next(name for name in content.namelist() if name.endswith(".data/scripts/uv"))
            program = content.read(name)
        member = plain(tarfile.TarInfo("uv"))
        member.size, member.mode = len(program), 0o755
        stream.addfile(member, io.BytesIO(program))
    with archive.open("rb") as written:
        os.fsync(written.fileno())


def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member without the times and owners of this machine."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = "root"
    member.mode = 0o644
    return member
