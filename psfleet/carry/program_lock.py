"""Resolves the requirements of a user's program into a lock: all packages of the program's environment."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from plugins.module_utils.content_directory import LOCK_SUFFIX, locked
from plugins.module_utils.environments.environment import (
    TENSORFLOW_VERSION,
    WITHOUT_CUDA_WHEELS,
    HostEnvironment,
    every_environment,
    release_of,
)
from psfleet.carry.locks import PinnedPackage, lock_text, read_lock, read_locks, without_comments
from psfleet.carry.pip_settings import UV, uv_settings, without_passwords
from psfleet.inventory.program_requirements import TENSORFLOW, ProgramRequirements
from trainer.host.whole_files import file_sha256

VARIABLE = "trainer_program_requirements or trainer_programs"
HEAD = "# Resolved by psfleet"
GLIBC = "manylinux_2_28"
LOCK_TIMEOUT_SECONDS = 600
KEY_DIGITS = 16
CUDA_EXTRA = "and-cuda"
# {release of TensorFlow: what it needs beside what its own package says}. 2.20 calls MessageToString with an
# argument that protobuf 7 no longer has.
LIMITS = {"2.20": ("protobuf<7",)}
# uv prints one of these texts if an index did not answer with packages. The requirements may be right then.
UNREACHED = ("Failed to fetch", "could not be queried", "network was disabled")


@dataclass(frozen=True)
class ProgramLock:
    """All packages of the environment of a program with the `requirements`, for an environment of hosts.

    The lock is written beside the requirements' file, so that it can be in git. A check writes it into the
    folder `cache` instead, for the next deployment. `preferred` are the locks of psfleet's own environment of
    such hosts: the program gets their versions where they fit.
    """

    requirements: ProgramRequirements
    preferred: tuple[Path, ...]
    environment: HostEnvironment
    cache: Path

    @property
    def file(self) -> Path:
        """The path of the requirements."""
        return self.requirements.file

    @property
    def key(self) -> str:
        """The hash of everything that determines the result, except the package index and older locks.

        It begins with the hash of the requirements. psfleet's own locks count only for its own TensorFlow.
        """
        own = self.environment.tensorflow == TENSORFLOW_VERSION
        content = b"\0".join(lock.read_bytes() for lock in self.preferred if own)
        inputs = [hashlib.sha256(content).hexdigest(), self.environment.python, self._platform]
        digest = hashlib.sha256(json.dumps([*inputs, self.environment.tensorflow]).encode()).hexdigest()
        return f"{self.requirements.key}-{digest[:KEY_DIGITS]}"

    @property
    def _platform(self) -> str:
        return f"{self.environment.machine}-{GLIBC}"

    @property
    def path(self) -> Path:
        """The path of the lock beside the user's file; it need not exist.

        Later deployments take the same versions from it.
        """
        return self._places(self.environment)[0]

    def _places(self, environment: HostEnvironment) -> tuple[Path, Path]:
        """Return (path of an environment's lock beside the user's file, path in `cache` for check mode).

        Neither need exist.
        """
        name = f"{environment.name}{LOCK_SUFFIX}"
        beside = self.file.with_name(f"{self.file.stem}.{name}")
        return beside, self.cache / "locks" / f"{self.requirements.key}.{name}"

    @property
    def _head(self) -> str:
        return f"{HEAD} for {self.environment.name} from {self.key}. Keep this file in git."

    @property
    def is_current(self) -> bool:
        """Whether the lock beside the user's file is there and is made from today's `key`.

        Raises ValueError if the lock is damaged or not psfleet's.
        """
        return self._is_of_key(self.path)

    def _is_of_key(self, lock: Path) -> bool:
        if not lock.exists():
            return False
        head, _, body = lock.read_text(encoding="utf-8", errors="replace").partition("\n")
        whole = body == lock_text(read_lock(body).values())
        if not head.startswith(HEAD) or (head == self._head and not whole):
            raise ValueError(
                f"{lock} is not as psfleet wrote it, with its first line and each package pinned by hashes. "
                f"Restore it (git checkout {lock}), or remove it: a deployment then writes it anew"
            )
        return head == self._head

    def resolve(self, say: Callable[[str], object], *, keep: bool) -> Path:
        """Return the path of a lock that is up to date; if there is none, resolve the requirements with uv.

        With `keep`, the lock is written beside the user's file, else into the cache. `say` gets lines about
        the progress. Raises ValueError if a lock is damaged or cannot be written, and, with uv's output, if
        the requirements cannot be resolved.
        """
        kept, checked = self._places(self.environment)
        checked.parent.mkdir(parents=True, exist_ok=True)
        with locked(checked.with_suffix(".held"), LOCK_TIMEOUT_SECONDS):
            if not self.is_current:
                if not self._is_of_key(checked):
                    self._announce(say)
                    self._write(checked, lock_text(self._packages()))
                if not keep:
                    return checked
                self._write(kept, without_comments(checked))
                say(f"{kept} holds the resolved versions: keep it in git")
            if keep:
                checked.unlink(missing_ok=True)
        return kept

    def _announce(self, say: Callable[[str], object]) -> None:
        why = ""
        if self.path.exists():
            why = " anew: they or psfleet's locks have changed since; its versions stay where they fit"
        say(f"Resolve {self.file} for {self.environment.name}{why} ...")

    def _write(self, lock: Path, text: str) -> None:
        fresh = lock.with_name(f".{lock.name}")
        try:
            fresh.write_text(f"{self._head}\n{text}", encoding="utf-8")
            fresh.replace(lock)
        except OSError as error:
            raise ValueError(
                f"{VARIABLE}: {lock} cannot be written ({error.strerror}), the lock of what "
                f"{self.file} needs, which lies beside it so that git has it. Let this user write in "
                f"{lock.parent}, or name a copy of the file in another folder: {VARIABLE}"
            ) from error

    @property
    def _tensorflow(self) -> str:
        """The package of TensorFlow in this environment: that of the user's wheel, else the environment's."""
        own = (name for name in TENSORFLOW if name in self.requirements.wheels)
        return next(own, self.environment.tensorflow_package)

    def _packages(self) -> list[PinnedPackage]:
        """Return the resolved packages, each with the hashes that the user permits."""
        allowed: dict[str, frozenset[str]] = {}
        for each in self.requirements.packages:
            name = self._tensorflow if each.name in TENSORFLOW else each.name
            allowed[name] = allowed.get(name, frozenset()) | each.hashes
        locks = read_lock(self._compile())
        preferred = read_locks(self.preferred)
        # A library may require TensorFlow by its other name.
        unwanted = {*TENSORFLOW} - {self._tensorflow}
        return [
            self._narrowed(_same(package, preferred.get(name)), allowed.get(name, frozenset()))
            for name, package in locks.items()
            if name not in unwanted
        ]

    def _narrowed(self, package: PinnedPackage, allowed: frozenset[str]) -> PinnedPackage:
        own = self.requirements.wheels.get(package.name)
        hashes = (
            frozenset({file_sha256(own)}) if own else package.hashes & allowed if allowed else package.hashes
        )
        if not hashes:
            raise ValueError(
                f"{VARIABLE}: {self.file} allows {package.name} only with other hashes than those of "
                f"{package.name}=={package.version}, which is the version for the hosts. "
                f"Edit {self.file}"
            )
        return PinnedPackage(package.name, package.version, hashes)

    def _required(self) -> list[str]:
        """Return the requirements for uv: the user's, and TensorFlow's package of this environment."""
        environment = self.environment
        cuda = environment.device == "gpu" and release_of(environment.tensorflow) not in WITHOUT_CUDA_WHEELS
        extra = f"[{CUDA_EXTRA}]" if cuda else ""
        others = [str(each.requirement) for each in self.requirements.packages if each.name not in TENSORFLOW]
        named = [
            each.requirement.extras - {CUDA_EXTRA}
            for each in self.requirements.packages
            if each.name in TENSORFLOW
        ]
        tensorflow = Requirement(f"{self._tensorflow}{extra}=={environment.tensorflow}")
        tensorflow.extras |= {name for extras in named for name in extras}
        return [*others, str(tensorflow)]

    def _compile(self) -> str:
        """Return uv's lock of the requirements. Versions of TensorFlow but the environment's are excluded."""
        with tempfile.TemporaryDirectory() as folder:
            requirements, constraints, lock = (
                Path(folder) / name for name in ("requirements.txt", "tensorflow.txt", "lock.txt")
            )
            settings = uv_settings()
            pins = [f"{name}=={self.environment.tensorflow}" for name in TENSORFLOW]
            pins += LIMITS.get(release_of(self.environment.tensorflow), ())
            limits = [*pins, *(f"-c {place}" for place in settings.constraints)]
            own = Path(folder) / "wheels"
            for path, content in {
                requirements: self._required(),
                constraints: limits,
                lock: self._preferred(),
            }.items():
                path.write_text("".join(f"{line}\n" for line in content), encoding="utf-8")
            done = subprocess.run(
                [
                    UV,
                    *["pip", "compile", "--quiet", "--only-binary=:all:", "--generate-hashes"],
                    *["--strip-extras", "--no-header", "--no-annotate"],
                    # Any Python can resolve for another version. Without a path, uv searches for that
                    # version.
                    *[f"--python={sys.executable}", f"--python-version={self.environment.python}"],
                    *[f"--python-platform={self._platform}", f"--constraints={constraints}"],
                    *self._own_options(own),
                    *[*settings.options, f"--output-file={lock}", str(requirements)],
                ],
                cwd=folder,
                env=settings.environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise ValueError(self._failure(without_passwords(done.stderr.strip())))
            return lock.read_text(encoding="utf-8")

    def _own_options(self, folder: Path) -> list[str]:
        """Return uv's options to find the user's wheels, after linking them into a new folder."""
        wheels = self.requirements.wheels.values()
        if not wheels:
            return []
        folder.mkdir()
        for wheel in wheels:
            (folder / wheel.name).symlink_to(wheel.absolute())
        # The option replaces the variable.
        places = [str(folder), *os.environ.get("UV_FIND_LINKS", "").split(",")]
        return [f"--find-links={place}" for place in places if place]

    def _preferred(self) -> list[str]:
        """Return the versions that uv prefers: those in psfleet's locks, and in all earlier locks.

        Locks for other environments count, too. If locks differ, a lock of today's requirements has
        precedence, so that a cluster's hosts get the same versions; then the lock of this environment.
        """
        others = [each for each in every_environment() if each != self.environment]
        places = [
            place for each in (*others, self.environment) for place in self._places(each) if place.is_file()
        ]
        of_these = f" {self.requirements.key}-"
        places.sort(key=lambda place: (of_these in place.read_text(encoding="utf-8"), place == self.path))
        versions = read_locks([*self.preferred, *places]).values()
        return [f"{package.name}=={package.version}" for package in versions]

    def _failure(self, output: str) -> str:
        if any(words in output for words in UNREACHED):
            return (
                f"{VARIABLE}: {self.file} cannot be resolved, because uv could not query a package index. "
                "Fix the network, or this machine's pip settings, which uv uses (python -m pip config "
                f"list). uv printed:\n{output}"
            )
        version = self.environment.tensorflow
        return (
            f"{VARIABLE}: {self.file} cannot be resolved for {self.environment.name} with TensorFlow "
            f"{version}, which the program gets unless a line names another one, such as tensorflow==2.15.1. "
            f"Edit {self.file}. uv printed:\n{output}"
        )


def _same(package: PinnedPackage, known: PinnedPackage | None) -> PinnedPackage:
    """Return `known`, psfleet's own pin of a package, if it has the version of `package`; else `package`.

    So the same version means the same wheels in all environments.
    """
    return known if known and known.version == package.version else package
