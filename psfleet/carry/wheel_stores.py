"""The wheels of one environment in a cache on the controller, packed as one archive for its hosts."""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from plugins.module_utils.content_directory import HASH_DIGITS, locked
from plugins.module_utils.disk_space import lacking_space
from plugins.module_utils.environments.environment import HostEnvironment
from psfleet.carry.filled_environment import fill_and_pack
from psfleet.carry.locks import PinnedPackage, lock_text, read_locks, without_comments
from psfleet.carry.long_step import MEGABYTE, report_progress
from psfleet.carry.program_lock import ProgramLock
from psfleet.carry.wheel_archive import SPARE_BYTES, installed_bytes, pack
from psfleet.carry.wheels import best_wheels, collect_wheels, pool_beside, require_one_tensorflow, size_below
from psfleet.inventory.program_requirements import TENSORFLOW, ProgramRequirements
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
class Base:
    """A complete environment on hosts, whose files another environment begins with.

    `lock_hash` is its name, `packages` are {normalized name: package}.
    """

    lock_hash: str
    packages: Mapping[str, PinnedPackage]

    def shared(self, packages: Mapping[str, PinnedPackage]) -> set[str]:
        """Return the normalized names of the packages that are the same here as in `packages`."""
        return {name for name, package in packages.items() if _are_same(package, self.packages.get(name))}


def _are_same(package: PinnedPackage, other: PinnedPackage | None) -> bool:
    """Return whether two locks pin the same version, and permit at least one wheel in common.

    False if `other` is None: the other lock lacks the package.
    """
    return other is not None and package.version == other.version and bool(package.hashes & other.hashes)


@dataclass(frozen=True)
class WheelStore:
    """The wheels of an environment's locks, in a cache that several clones share.

    `locks` are the locks, and `installer` is the lock of uv, which installs them. `base` is the environment
    whose files this one begins with, None if it begins empty. `own_wheels` are the user's wheels, {normalized
    name: path}. `usual_bytes` are estimated sizes of the archive and of the environment, used until the
    archive exists.
    """

    environment: HostEnvironment
    locks: tuple[Path, ...]
    installer: Path
    cache: Path
    base: Base | None = None
    own_wheels: Mapping[str, Path] = field(default_factory=dict)
    usual_bytes: tuple[int, int] = (0, SPARE_BYTES)

    @classmethod
    def of(
        cls, environment: HostEnvironment, locks: Path, cache: Path, *, tensorboard: bool = False
    ) -> "WheelStore":
        """Return the store of an environment, or, with `tensorboard`, of the environment's TensorBoard.

        `locks` is the folder of the locks.
        """
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

        It covers the text of all locks without comments, the Python version and the processor: different
        hosts use the same locks, but other wheels.
        """
        content = "".join(without_comments(lock) for lock in (*self.locks, self.installer))
        content += f"python{self.environment.python} {self.environment.machine}"
        return hashlib.sha256(content.encode()).hexdigest()[:HASH_DIGITS]

    @property
    def packages(self) -> dict[str, PinnedPackage]:
        """{normalized name: package} of the environment."""
        return read_locks(self.locks)

    @property
    def lacking(self) -> dict[str, PinnedPackage]:
        """{normalized name: package} of the packages that its base does not have."""
        shared = self.base.shared(self.packages) if self.base else set()
        return {name: package for name, package in self.packages.items() if name not in shared}

    @property
    def removed(self) -> list[str]:
        """The names of the packages of its base that the environment does not keep, sorted."""
        shared = self.base.shared(self.packages) if self.base else set()
        return sorted(self.base.packages.keys() - shared) if self.base else []

    @property
    def folder(self) -> Path:
        """The path of the folder with the finished archive."""
        on = f"-on-{self.base.lock_hash}" if self.base else ""
        return self.cache / "wheels" / f"{self.lock_hash}{on}"

    @property
    def archive(self) -> Path:
        """The path of the finished archive. It exists completely or not at all."""
        return self.folder / f"wheels-{self.folder.name}.tar"

    @property
    def packed_environment(self) -> Path:
        """The path of the environment as `fill_environment` packs it. It exists completely or not at all."""
        return self.folder / f"environment-{self.lock_hash}.tar.zst"

    def program_lock(self, requirements: ProgramRequirements, environment: HostEnvironment) -> ProgramLock:
        """Return the lock of a program for an environment; this store's versions are preferred."""
        return ProgramLock(requirements, self.locks, environment, self.cache)

    def program_store(
        self,
        lock: ProgramLock,
        path: Path,
        installed: Iterable[str] = (),
        earlier: Iterable["WheelStore"] = (),
    ) -> "WheelStore":
        """Return the store of a program's environment, whose resolved lock is at `path`.

        It begins with the files of an environment that has the same TensorFlow, if all its hosts have one:
        this store's own, one of the `earlier` stores for the same environment, which the hosts get before, or
        one of `installed`, hashes of environments that are on the hosts. It is this store if it has the same
        packages.
        """
        fresh = WheelStore(
            lock.environment,
            (path,),
            self.installer,
            self.cache,
            own_wheels=lock.requirements.wheels,
            usual_bytes=USUAL_BYTES[lock.environment.device],
        )
        if lock.environment == self.environment and not {*_changes(fresh, self.as_base)}:
            return self
        others = (self._installed(name, lock.environment) for name in installed if name != fresh.lock_hash)
        bases = [base for base in others if base]
        bases += [store.as_base for store in earlier]
        bases += [self.as_base] if lock.environment.python == self.environment.python else []
        packages = fresh.packages
        tensorflow = {*TENSORFLOW} & packages.keys()
        fitting = [base for base in bases if tensorflow and tensorflow <= base.shared(packages)]
        if not fitting:
            return fresh
        best = min(fitting, key=lambda base: len(_changes(fresh, base)))
        return replace(fresh, base=best, usual_bytes=(0, SPARE_BYTES))

    @property
    def as_base(self) -> Base:
        """The environment, as a base for others once hosts have it."""
        return Base(self.lock_hash, self.packages)

    def _installed(self, lock_hash: str, environment: HostEnvironment) -> Base | None:
        """Return an environment that hosts have, as a base; None if this cache does not know its packages.

        It must have the Python of `environment`; the hash of its lock says the same.
        """
        for lock in (self.cache / "wheels").glob(f"{lock_hash}*/lock.txt"):
            known = replace(self, environment=environment, locks=(lock,))
            if known.lock_hash == lock_hash:
                return Base(lock_hash, known.packages)
        return None

    def describe(self) -> dict[str, Any]:
        """Return {field: value} of the store, with the fields in RETURN of the module `wheel_store`.

        `archive` is the packed environment if it exists, else the archive of wheels. Until that exists,
        `archive_sha256` is "", and the sizes are estimates.
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
            "base": self.base.lock_hash if self.base else "",
            "removed": self.removed,
        }

    def fill(self, say: Callable[[str], None]) -> None:
        """Download, verify and pack the wheels; if the archive exists, do nothing.

        Files of an interrupted download are used again. Waits while another deployment works on this store.
        Raises ValueError if a wheel is unavailable or does not match its lock, or if the disk has too little
        space; OSError if the disk fails, and TimeoutError after LOCK_TIMEOUT_SECONDS.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        partial = self.folder.with_suffix(".partial")
        with self._alone(say):
            if self.archive.exists():  # another clone was faster
                return
            packages = {**self.lacking, **read_locks([self.installer])}
            self._require_space(packages, partial)
            wheels = collect_wheels(packages, self.environment, partial, say, self.own_wheels)
            require_one_tensorflow(wheels, {*self.packages} & {*TENSORFLOW})
            self._pack(wheels, partial / "finished", say)
            (partial / "finished").rename(self.folder)
            shutil.rmtree(partial)

    def fill_environment(self, say: Callable[[str], None]) -> None:
        """Install the environment here, and pack it for the hosts, which then need no wheels.

        If it is packed already, do nothing. With too little disk space, tell `say` and do nothing. Waits, and
        raises TimeoutError, as `fill` does. Raises ValueError if a step fails, and OSError if the disk fails.
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
        """Wait until no other deployment works on this store; keep others waiting during the block.

        Raises TimeoutError after LOCK_TIMEOUT_SECONDS.
        """
        with ExitStack() as stack:
            with report_progress(say, lambda: f"wait for another deployment that makes {self.archive}"):
                stack.enter_context(
                    locked(self.folder.parent / f".{self.lock_hash}.lock", LOCK_TIMEOUT_SECONDS)
                )
            yield

    def _note(self, archive: Path, digest: str, environment_bytes: int) -> None:
        """Write `digest` (SHA-256 of an archive) and `environment_bytes` (its size once installed) beside it.

        So no deployment reads gigabytes for them. The files end with .sha256 and .environment_bytes.
        """
        archive.with_suffix(".sha256").write_text(f"{digest}\n", encoding="ascii")
        archive.with_suffix(".environment_bytes").write_text(f"{environment_bytes}\n", encoding="ascii")

    def _require_space(self, packages: Mapping[str, PinnedPackage], partial: Path) -> None:
        archive_bytes = self.usual_bytes[0]
        wheels = best_wheels(pool_beside(self.folder).glob("*.whl"), packages, self.environment)
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
        (folder / "lock.txt").write_text(lock, encoding="utf-8")
        if self.base:
            lock = lock_text(self.lacking.values())
        with report_progress(say, lambda: f"packed {readable(archive.stat().st_size)} of {readable(size)}"):
            digest = pack(wheels, lock, archive)
        installed = [wheel for wheel in wheels.glob("*.whl") if not wheel.name.startswith("uv-")]
        self._note(archive, digest, installed_bytes(installed))


def _changes(store: WheelStore, base: Base) -> set[str]:
    """Return the names of the packages that are not the same in a store and in a base."""
    packages = store.packages
    return (packages.keys() | base.packages.keys()) - base.shared(packages)
