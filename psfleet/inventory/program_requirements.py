"""The requirements.txt of a program: the packages that it names, and the TensorFlow of the program."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from plugins.module_utils.content_directory import HASH_DIGITS
from plugins.module_utils.environments.environment import (
    SUPPORTED_PYTHONS,
    TENSORFLOW_RELEASES,
    TENSORFLOW_VERSION,
    pythons_of,
)
from trainer.host.whole_files import file_sha256

EXPECTED = (
    "packages of an index by name, such as pandas==2.2.3, or files such as ./my_ops-1.0-py3-none-any.whl, "
    "without URLs, and without options but --hash"
)
# The two names of TensorFlow. An environment has one of them; programs and libraries may require either.
TENSORFLOW = ("tensorflow", "tensorflow-cpu")
_HASH = re.compile(r"\s--hash[= ]sha256:([0-9a-f]{64})(?!\S)")
_WHEEL = re.compile(r"[./~]\S*\.whl")


class RequirementsError(ValueError):
    """A line, or several lines together, that psfleet cannot install; the message says which, and why."""


@dataclass(frozen=True)
class RequiredPackage:
    """A package that a line of the file requires.

    `requirement` has its name and version. `hashes` are the sha256 of the permitted wheels, empty for any.
    `wheel` is a wheel on the controller, None for a package of an index.
    """

    requirement: Requirement
    hashes: frozenset[str] = frozenset()
    wheel: Path | None = None

    @classmethod
    def of(cls, line: str, folder: Path) -> "RequiredPackage":
        """Return the package that a line requires; a relative path to a wheel is relative to `folder`.

        Raises ValueError that says what is wrong with the line: an option other than --hash, a URL, another
        path, no requirement, or a wheel with another hash. Raises OSError if the wheel cannot be read.
        """
        words, hashes = _HASH.sub("", f"{line} ").strip(), frozenset(_HASH.findall(line))
        if words.startswith("-"):
            raise ValueError(f"the option {re.split('[= ]', words)[0]}")
        if _WHEEL.fullmatch(words):
            return cls._of_wheel(folder / Path(words).expanduser(), hashes)
        if re.match(r"[./~]|[A-Za-z+]+://", words) or re.search(r"\.(whl|zip|tar\.gz)$", words):
            raise ValueError("a path or a URL")
        try:
            requirement = Requirement(words)
        except InvalidRequirement as error:
            raise ValueError(str(error).splitlines()[0]) from None
        if requirement.url:
            raise ValueError("a URL")
        return cls(requirement, hashes)

    @classmethod
    def _of_wheel(cls, wheel: Path, hashes: frozenset[str]) -> "RequiredPackage":
        try:
            name, version, _, _ = parse_wheel_filename(wheel.name)
        except (InvalidWheelFilename, InvalidVersion) as error:
            raise ValueError(str(error)) from None
        found = file_sha256(wheel)
        if hashes and found not in hashes:
            raise ValueError(f"its sha256 is {found}")
        return cls(Requirement(f"{name}=={version}"), frozenset({found}), wheel)

    @property
    def name(self) -> str:
        """The normalized name of the package, such as "my-ops" for "My_Ops"."""
        return str(canonicalize_name(self.requirement.name))

    @property
    def pythons(self) -> frozenset[str]:
        """The supported Pythons, such as "3.11", for which the package can be installed, by its wheel's name.

        They are all for a package of an index, and for a wheel with the tag py3.
        """
        if self.wheel is None:
            return frozenset(SUPPORTED_PYTHONS)
        tags = parse_wheel_filename(self.wheel.name)[3]
        return frozenset(python for python in SUPPORTED_PYTHONS if any(_fits(tag, python) for tag in tags))


def _fits(tag: Tag, python: str) -> bool:
    """Return whether a version of Python can load a wheel with this tag (PEP 425), on whatever platform."""
    minor = int(python.partition(".")[2])
    oldest = re.fullmatch(r"cp3(\d+)", tag.interpreter)
    if oldest and tag.abi == "abi3":
        return int(oldest[1]) <= minor
    return tag.interpreter in {"py3", f"cp3{minor}"}


@dataclass(frozen=True)
class ProgramRequirements:
    """The packages of a program's requirements.txt.

    `tensorflow` is the version of TensorFlow for the program, and `pythons` are the supported Pythons for
    which its wheels exist, the oldest first.
    """

    file: Path
    packages: tuple[RequiredPackage, ...]
    tensorflow: str
    pythons: tuple[str, ...]

    @classmethod
    def read(cls, file: Path) -> "ProgramRequirements":
        """Return the requirements in a file.

        Raises RequirementsError for a line that psfleet does not install, and if no TensorFlow or no Python
        fits all lines. Raises OSError if `file` is missing or cannot be read.
        """
        text = file.read_text(encoding="utf-8", errors="replace")
        packages = [_package(line, number, file.parent) for number, line in logical_lines(text)]
        version = _tensorflow(packages)
        pythons = frozenset(pythons_of(version)).intersection(*(each.pythons for each in packages))
        if not pythons:
            wheels = ", ".join(str(each.requirement) for each in packages if each.wheel)
            of = ", ".join(pythons_of(version))
            raise RequirementsError(f"TensorFlow {version} is for Python {of}, and {wheels} for others")
        return cls(
            file, tuple(packages), version, tuple(each for each in SUPPORTED_PYTHONS if each in pythons)
        )

    @property
    def key(self) -> str:
        """A hash, the same for files that require the same; it names the link to the environment.

        It has 12 hex digits. The order of the lines and comments do not matter.
        """
        lines = sorted({f"{each.requirement} {sorted(each.hashes)}" for each in self.packages})
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:HASH_DIGITS]

    @property
    def wheels(self) -> dict[str, Path]:
        """{normalized name: path of the wheel on the controller}, without the packages of an index."""
        return {each.name: each.wheel for each in self.packages if each.wheel}


def _package(line: str, number: int, folder: Path) -> RequiredPackage:
    try:
        return RequiredPackage.of(line, folder)
    except ValueError as error:
        raise RequirementsError(f"line {number} is {line!r} ({error})") from None
    except OSError as error:
        what = f"line {number} is {line!r}, and {error.filename} cannot be read ({error.strerror})"
        raise RequirementsError(what) from None


def _tensorflow(packages: Iterable[RequiredPackage]) -> str:
    """Return the version of TensorFlow for a program that requires these packages.

    The first of these that fits all lines about TensorFlow: psfleet's own version; the newest patch of each
    accepted release, the newest release first; a version that a line names exactly. Without such lines, it is
    psfleet's own. Raises RequirementsError if none fits.
    """
    named = [each for each in packages if each.name in TENSORFLOW]
    limits = SpecifierSet()
    for each in named:
        limits &= each.requirement.specifier
    newest = [TENSORFLOW_VERSION, *(patch for patch, _ in reversed([*TENSORFLOW_RELEASES.values()]))]
    exact = [limit.version for limit in limits if limit.operator == "==" and "*" not in limit.version]
    for version in [*newest, *exact]:
        if pythons_of(version) and limits.contains(Version(version), prereleases=True):
            return version
    releases = [*TENSORFLOW_RELEASES]
    raise RequirementsError(
        f"it requires TensorFlow {limits}; psfleet installs {releases[0]} to {TENSORFLOW_VERSION}"
    )


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number, text) for each line that is not empty without its comment; the first number is 1.

    A line that ends with a backslash is joined with the next; the number is the first line's then.
    Example: "a" and "# b" and "c" on three lines -> (1, "a"), (3, "c")
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
