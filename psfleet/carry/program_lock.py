"""Resolves the requirements of a user's program into a lock that supplements the environment's lock."""

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from plugins.module_utils.content_directory import LOCK_SUFFIX, locked
from plugins.module_utils.environments.environment import HostEnvironment, every_environment
from psfleet.carry.locks import PinnedPackage, lock_text, read_lock, read_locks, without_comments
from psfleet.carry.pip_settings import UV, uv_settings, without_passwords

VARIABLE = "trainer_program_requirements or trainer_programs"
HEAD = "# Resolved by psfleet"
GLIBC = "manylinux_2_28"
LOCK_TIMEOUT_SECONDS = 600
KEY_DIGITS = 16
EXPECTED = "expected packages of an index by name, such as pandas==2.2.3, without options, URLs and paths"
# The two names of TensorFlow. An environment has one of them; programs and libraries may require either.
TENSORFLOW = ("tensorflow", "tensorflow-cpu")
CUDA_EXTRA = "and-cuda"
# uv prints one of these texts if an index did not answer with packages. The requirements may be right then.
UNREACHED = ("Failed to fetch", "could not be queried", "network was disabled")


@dataclass(frozen=True)
class RequiredPackage:
    """A package that a line of the user's file requires.

    `hashes` are those of the permitted wheels, empty for any.
    """

    requirement: Requirement
    hashes: frozenset[str]

    @classmethod
    def of(cls, line: str) -> "RequiredPackage":
        """Return the package that a line requires.

        Raises ValueError that says what is wrong with the line.
        """
        words = re.sub(r"\s+--hash[= ]sha256:[0-9a-f]{64}", "", line).strip()
        if words.startswith("-"):
            raise ValueError(f"the option {re.split('[= ]', words)[0]}")
        if re.match(r"[./~]|[A-Za-z+]+://", words) or re.search(r"\.(whl|zip|tar\.gz)$", words):
            raise ValueError("a path or a URL")
        try:
            requirement = Requirement(words)
        except InvalidRequirement as error:
            raise ValueError(str(error).splitlines()[0]) from None
        if requirement.url:
            raise ValueError("a URL")
        return cls(requirement, frozenset(re.findall(r"--hash[= ]sha256:([0-9a-f]{64})", line)))


@dataclass(frozen=True)
class ProgramLock:
    """The packages that the user's file `requirements` needs in addition to the environment's locks, `base`.

    The lock is written beside that file, so that it can be in git. A check writes it into the folder `cache`
    instead, for the next deployment. The files in `others` are resolved together with `requirements`, into
    the same lock.
    """

    requirements: Path
    base: tuple[Path, ...]
    environment: HostEnvironment
    cache: Path
    others: tuple[Path, ...] = ()

    @property
    def _files(self) -> tuple[Path, ...]:
        return (self.requirements, *self.others)

    @property
    def _named(self) -> str:
        return " and ".join(map(str, self._files))

    @property
    def key(self) -> str:
        """The hash of everything that determines the result, except the package index and older locks.

        It begins with the hash of the user's files.
        """
        content = b"\0".join(lock.read_bytes() for lock in self.base)
        inputs = [hashlib.sha256(content).hexdigest(), self.environment.python, self._platform]
        digest = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()
        return f"{self._requirements_key}-{digest[:KEY_DIGITS]}"

    @property
    def _requirements_key(self) -> str:
        content = b"\0".join(file.read_bytes() for file in self._files)
        return hashlib.sha256(content).hexdigest()[:KEY_DIGITS]

    @property
    def _platform(self) -> str:
        return f"{self.environment.machine}-{GLIBC}"

    @property
    def path(self) -> Path:
        """The path of the lock beside the user's file. Later deployments take the same versions from it."""
        return self._places(self.environment)[0]

    def _places(self, environment: HostEnvironment) -> tuple[Path, Path]:
        """Return (path of an environment's lock, path where a check writes it)."""
        name = f"{environment.name}{LOCK_SUFFIX}"
        beside = self.requirements.with_name(f"{self.requirements.stem}.{name}")
        return beside, self.cache / "locks" / f"{self._requirements_key}.{name}"

    @property
    def _head(self) -> str:
        return f"{HEAD} for {self.environment.name} from {self.key}. Keep this file in git."

    @property
    def is_current(self) -> bool:
        """Whether the lock beside the user's file is up to date. Raises ValueError if the lock is damaged."""
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
        """Return the path of the lock. Unless a lock is up to date, resolve the requirements with uv.

        With `keep`, the lock is written beside the user's file, else into the cache. `say` gets lines about
        the progress. Raises ValueError if the file has a refused line, if a lock is damaged or cannot be
        written, and, with uv's output, if the requirements cannot be resolved.
        """
        required = self._required_packages()
        kept, checked = self._places(self.environment)
        checked.parent.mkdir(parents=True, exist_ok=True)
        with locked(checked.with_suffix(".held"), LOCK_TIMEOUT_SECONDS):
            if not self.is_current:
                if not self._is_of_key(checked):
                    self._announce(say)
                    self._write(checked, lock_text(self._beside_base(required)))
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
        say(f"Resolve {self._named} for {self.environment.name}{why} ...")

    def _write(self, lock: Path, text: str) -> None:
        fresh = lock.with_name(f".{lock.name}")
        try:
            fresh.write_text(f"{self._head}\n{text}", encoding="utf-8")
            fresh.replace(lock)
        except OSError as error:
            raise ValueError(
                f"{VARIABLE}: {lock} cannot be written ({error.strerror}), the lock of what "
                f"{self._named} needs, which lies beside it so that git has it. Let this user write in "
                f"{lock.parent}, or name a copy of the file in another folder: {VARIABLE}"
            ) from error

    def _beside_base(self, required: Sequence[RequiredPackage]) -> list[PinnedPackage]:
        """Return the resolved packages that the base lacks, each with the hashes that the user permits."""
        allowed: dict[str, frozenset[str]] = {}
        for each in required:
            name: str = canonicalize_name(each.requirement.name)
            allowed[name] = allowed.get(name, frozenset()) | each.hashes
        base = read_locks(self.base)
        tensorflow = next((base[name] for name in TENSORFLOW if name in base), None)
        lacking = []
        for name, package in read_lock(self._compile(required, tensorflow)).items():
            provided = base.get(name, tensorflow if name in TENSORFLOW else None)
            narrowed = self._narrowed(provided or package, allowed.get(name, frozenset()))
            if provided is None:
                lacking.append(narrowed)
        return lacking

    def _narrowed(self, package: PinnedPackage, allowed: frozenset[str]) -> PinnedPackage:
        hashes = package.hashes & allowed if allowed else package.hashes
        if not hashes:
            raise ValueError(
                f"{VARIABLE}: {self._named} allows {package.name} only with other hashes than those of "
                f"{package.name}=={package.version}, which is the version for the hosts. "
                f"Edit {self._named}"
            )
        return PinnedPackage(package.name, package.version, hashes)

    def _required_packages(self) -> list[RequiredPackage]:
        """Return the packages that the user's files require. Raises ValueError for a refused line."""
        texts = {file: file.read_text(encoding="utf-8") for file in self._files}
        return [
            _required_package(file, line, number)
            for file, text in texts.items()
            for number, line in logical_lines(text)
        ]

    def _resolvable(self, required: Requirement, tensorflow: PinnedPackage | None) -> str:
        """Return a requirement for uv. TensorFlow and its CUDA packages are replaced by the environment's."""
        if tensorflow is None or canonicalize_name(required.name) not in TENSORFLOW:
            return str(required)
        own = Requirement(str(required))
        if (
            canonicalize_name(tensorflow.name) == TENSORFLOW[0]
        ):  # tensorflow-cpu lacks wheels for some processors
            own.name = TENSORFLOW[0]
        if self.environment.device != "gpu":
            own.extras.discard(CUDA_EXTRA)
        return str(own)

    def _compile(self, required: Sequence[RequiredPackage], tensorflow: PinnedPackage | None) -> str:
        """Return uv's lock of the requirements. The packages of the base are constraints."""
        lines = [self._resolvable(each.requirement, tensorflow) for each in required]
        pins = [f"{name}=={tensorflow.version}" for name in TENSORFLOW if tensorflow]
        with tempfile.TemporaryDirectory() as folder:
            requirements, constraints, lock = (
                Path(folder) / name for name in ("requirements.txt", "tensorflow.txt", "lock.txt")
            )
            settings = uv_settings()
            limits = [*pins, *(f"-c {place}" for place in settings.constraints)]
            for path, content in {requirements: lines, constraints: limits, lock: self._preferred()}.items():
                path.write_text("".join(f"{line}\n" for line in content), encoding="utf-8")
            done = subprocess.run(
                [
                    UV,
                    *["pip", "compile", "--quiet", "--only-binary=:all:", "--generate-hashes"],
                    *["--strip-extras", "--no-header", "--no-annotate"],
                    # Any Python can resolve for another version. Without a path, uv searches for that
                    # version.
                    *[f"--python={sys.executable}", f"--python-version={self.environment.python}"],
                    f"--python-platform={self._platform}",
                    *[f"--constraints={path}" for path in (*self.base, constraints)],
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

    def _preferred(self) -> list[str]:
        """Return the versions that uv prefers: those in earlier locks, also for other environments.

        Locks of the same requirements come last, so they have precedence: a cluster's hosts get the same
        versions.
        """
        places = [place for each in every_environment() for place in self._places(each) if place.is_file()]
        of_these = f" {self._requirements_key}-"
        places.sort(key=lambda place: (of_these in place.read_text(encoding="utf-8"), place == self.path))
        return [f"{package.name}=={package.version}" for package in read_locks(places).values()]

    def _failure(self, output: str) -> str:
        if any(words in output for words in UNREACHED):
            return (
                f"{VARIABLE}: {self._named} cannot be resolved, because uv could not query a package index. "
                "Fix the network, or this machine's pip settings, which uv uses (python -m pip config "
                f"list). uv printed:\n{output}"
            )
        pins = " and ".join(str(lock) for lock in self.base)
        return (
            f"{VARIABLE}: {self._named} cannot be resolved for {self.environment.name} beside the "
            f"packages that psfleet pins ({pins}), which stay as they are. "
            f"Edit {self._named}. uv printed:\n{output}"
        )


def _required_package(file: Path, line: str, number: int) -> RequiredPackage:
    try:
        return RequiredPackage.of(line)
    except ValueError as problem:
        raise ValueError(
            f"{VARIABLE}: {file}, line {number}: {line!r} is refused ({problem}); "
            f"{EXPECTED}: hosts install offline, and by hash alone. Edit {file}"
        ) from None


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of its first line, text) for each line that is not empty, without its comment.

    Lines are joined at backslashes. The first line has number 1.
    """
    begun, start = "", 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        start = start if begun else number
        begun += line
        if begun.endswith("\\"):
            begun = begun[:-1] + " "
            continue
        content = re.sub(r"(^|\s)#.*$", "", begun).strip()
        begun = ""
        if content:
            yield start, content
