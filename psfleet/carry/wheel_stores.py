"""The wheels of one environment in a cache on the controller, packed as one archive for its hosts."""

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugins.module_utils.content_directory import HASH_DIGITS, locked
from plugins.module_utils.disk_space import lacking_space
from plugins.module_utils.environments.environment import HostEnvironment
from psfleet.carry.filled_environment import fill_and_pack
from psfleet.carry.locks import PinnedPackage, read_locks, without_comments
from psfleet.carry.long_step import MEGABYTE, report_progress
from psfleet.carry.program_lock import ProgramLock
from psfleet.carry.wheel_archive import SPARE_BYTES, installed_bytes, pack
from psfleet.carry.wheels import best_wheels, collect_wheels, require_own_modules, size_below
from trainer.host.whole_files import file_sha256
from trainer.host.wording import readable

# Another deployment may be downloading gigabytes. Its lock ends with its process.
LOCK_TIMEOUT_SECONDS = 4 * 3600
# {device: (usual bytes of an archive that does not exist yet, usual bytes of the installed environment)}
USUAL_BYTES = {
    "cpu": (375 * MEGABYTE, 1700 * MEGABYTE),
    "gpu": (3480 * MEGABYTE, 6750 * MEGABYTE),
    "gpu-system": (675 * MEGABYTE, 2300 * MEGABYTE),
}
USUAL_BYTES_OF_TENSORBOARD = (80 * MEGABYTE, 200 * MEGABYTE)


@dataclass(frozen=True)
class WheelStore:
    """The wheels of an environment's locks, in a cache that several clones share.

    `locks` are the locks, and `installer` is the lock of uv, which installs them. `base` are the locks of the
    environment to which these wheels are added, () if they are an environment themselves. `usual_bytes` are
    estimated sizes of the archive and of the environment, used until the archive exists.
    """

    environment: HostEnvironment
    locks: tuple[Path, ...]
    installer: Path
    cache: Path
    base: tuple[Path, ...] = ()
    usual_bytes: tuple[int, int] = (0, SPARE_BYTES)

    @classmethod
    def of(
        cls, environment: HostEnvironment, locks: Path, cache: Path, *, tensorboard: bool = False
    ) -> "WheelStore":
        """Return the store of an environment, or of its TensorBoard; `locks` is the folder of the locks."""
        names = (environment.tensorboard_lock,) if tensorboard else environment.locks
        return cls(
            environment=environment,
            locks=tuple(locks / name for name in names),
            installer=locks / "installer.txt",
            cache=cache,
            usual_bytes=USUAL_BYTES_OF_TENSORBOARD if tensorboard else USUAL_BYTES[environment.device],
        )

    @property
    def lock_hash(self) -> str:
        """12 hex digits of a SHA-256 of everything that determines the wheels, which name the environment.

        Python version and processor are included, because different hosts use the same locks, but other
        wheels.
        """
        content = "".join(without_comments(lock) for lock in (*self.locks, self.installer, *self.base))
        content += f"python{self.environment.python} {self.environment.machine}"
        return hashlib.sha256(content.encode()).hexdigest()[:HASH_DIGITS]

    @property
    def folder(self) -> Path:
        """The path of the folder with the finished archive."""
        return self.cache / "wheels" / self.lock_hash

    @property
    def archive(self) -> Path:
        """The path of the finished archive. It exists completely or not at all."""
        return self.folder / f"wheels-{self.lock_hash}.tar"

    @property
    def packed_environment(self) -> Path:
        """The path of the packed environment. It exists completely or not at all."""
        return self.folder / f"environment-{self.lock_hash}.tar.zst"

    def program_lock(self, requirements: Path, *others: Path) -> ProgramLock:
        """Return the lock of the packages that the user's files with requirements add to this store."""
        return ProgramLock(requirements, self.locks, self.environment, self.cache, others)

    def program_store(self, lock: Path) -> "WheelStore | None":
        """Return the store of the packages in a program's lock; None if the lock has no packages."""
        if not without_comments(lock):
            return None
        return WheelStore(self.environment, (lock,), self.installer, self.cache, base=self.locks)

    def describe(self) -> dict[str, Any]:
        """Return what roles need to know of the store, with the fields in RETURN of the module `wheel_store`.

        Until the archive exists, `archive_sha256` is "", and the sizes are estimates.
        """
        digest, (archive_bytes, environment_bytes) = "", self.usual_bytes
        archive = self.packed_environment if self.packed_environment.exists() else self.archive
        if archive.exists():
            digest = archive.with_suffix(".sha256").read_text(encoding="ascii").strip()
            archive_bytes = archive.stat().st_size
            environment_bytes = int(archive.with_suffix(".environment_bytes").read_text(encoding="ascii"))
        return {
            "lock_hash": self.lock_hash,
            "python_version": self.environment.python,
            "filled": archive == self.packed_environment,
            "archive": str(archive),
            "archive_sha256": digest,
            "archive_bytes": archive_bytes,
            "environment_bytes": environment_bytes,
        }

    def fill(self, say: Callable[[str], None]) -> None:
        """Download, verify and pack the wheels. Files of an interrupted download are used again.

        Raises ValueError if a wheel is unavailable or does not match its lock, and OSError if the disk fails.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        partial = self.folder.with_suffix(".partial")
        with self._alone(say):
            if self.archive.exists():  # another clone was faster
                return
            packages = read_locks([*self.locks, self.installer])
            self._require_space(packages, partial)
            wheels = collect_wheels(packages, self.environment, partial, self._pool, say)
            if self.base:
                require_own_modules(wheels)
            self._pack(wheels, partial / "finished", say)
            (partial / "finished").rename(self.folder)
            shutil.rmtree(partial)

    def fill_environment(self, say: Callable[[str], None]) -> None:
        """Install the environment here, and pack it for the hosts, which then need no wheels.

        With too little disk space, tell `say` and do nothing. Raises ValueError if a step fails, and OSError
        if the disk fails.
        """
        with self._alone(say):
            if self.packed_environment.exists():
                return
            usual = (
                self.usual_bytes[0] + 2 * self.usual_bytes[1]
            )  # for the unpacked wheels, the environment, and its archive
            if lacking := lacking_space((self.folder, usual)):
                say(f"  {self.environment.name} is not installed here, but on each host: {lacking}")
                return
            partial = self.folder / f".{self.packed_environment.name}"
            with report_progress(
                say, lambda: f"install {self.environment.name} once, for all hosts that get it"
            ):
                size = fill_and_pack(self.archive, self.environment, partial)
                digest = file_sha256(partial)
            self._note(self.packed_environment, digest, size)
            partial.rename(self.packed_environment)

    @contextmanager
    def _alone(self, say: Callable[[str], None]) -> Iterator[None]:
        """Wait until no other deployment works on this store; keep others waiting during the block."""
        with ExitStack() as stack:
            with report_progress(say, lambda: f"wait for another deployment that makes {self.archive}"):
                stack.enter_context(
                    locked(self.folder.parent / f".{self.lock_hash}.lock", LOCK_TIMEOUT_SECONDS)
                )
            yield

    def _note(self, archive: Path, digest: str, environment_bytes: int) -> None:
        """Write hash and size of an archive beside it, so that no deployment reads gigabytes for them."""
        archive.with_suffix(".sha256").write_text(f"{digest}\n", encoding="ascii")
        archive.with_suffix(".environment_bytes").write_text(f"{environment_bytes}\n", encoding="ascii")

    @property
    def _pool(self) -> Path:
        return self.folder.parent / "pool"

    def _require_space(self, packages: Mapping[str, PinnedPackage], partial: Path) -> None:
        archive_bytes = self.usual_bytes[0]
        wheels = best_wheels(self._pool.glob("*.whl"), packages, self.environment)
        to_download = max(0, archive_bytes - sum(wheel.stat().st_size for wheel in wheels))
        # pip keeps a second copy until the archive is packed, to resume after an interruption. Space that an
        # interrupted download already uses is reused or freed, so it is not needed again.
        left = size_below(partial / "cache") + size_below(partial / "temporary")
        needed = archive_bytes + max(0, 2 * to_download - left)
        if lacking := lacking_space((self.folder.parent, needed)):
            raise ValueError(
                f"Too little space on this machine for the wheels of {self.environment.name}: {lacking}. "
                "Nothing was downloaded. Free some, or name another place: package_store_cache_directory or "
                "PSFLEET_CACHE"
            )

    def _pack(self, wheels: Path, folder: Path, say: Callable[[str], None]) -> None:
        folder.mkdir(exist_ok=True)
        archive = folder / self.archive.name
        size = sum(wheel.stat().st_size for wheel in wheels.glob("*.whl"))
        lock = "".join(without_comments(lock) for lock in self.locks)
        with report_progress(say, lambda: f"packed {readable(archive.stat().st_size)} of {readable(size)}"):
            digest = pack(wheels, lock, archive)
        installed = [wheel for wheel in wheels.glob("*.whl") if not wheel.name.startswith("uv-")]
        self._note(archive, digest, installed_bytes(installed))
