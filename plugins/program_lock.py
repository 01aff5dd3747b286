"""What a user's program requires, resolved into a lock beside that of the hosts' environment."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from plugins.locks import Pinned, lock_text, normalized, read_lock
from plugins.module_utils.content_directory import locked

VARIABLE = "trainer_program_requirements"
PLATFORM = "x86_64-manylinux_2_28"
LOCK_TIMEOUT_SECONDS = 600
KEY_DIGITS = 16
EXPECTED = "expected packages of an index by name, such as pandas==2.2.3, without options, URLs and paths"
# The hosts' lock has TensorFlow under the first name; programs and libraries ask for it by the second.
TENSORFLOW = ("tensorflow_cpu", "tensorflow")
# What uv is told of pip's settings, so that there is one place to configure a mirror.
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
# pip separates the values of such a setting by blanks and ends of lines, uv by these.
SEPARATORS = {"UV_INDEX": " ", "UV_FIND_LINKS": ",", "UV_INSECURE_HOST": " "}
# In uv's words where an index did not answer, or not with packages: the requirements may be as they should.
UNREACHED = ("Failed to fetch", "could not be queried", "network was disabled")


@dataclass(frozen=True)
class ProgramLock:
    """The packages that the user's file `requirements` needs beside those of the lock `base`."""

    requirements: Path
    base: Path
    python_version: str
    cache: Path

    @property
    def key(self) -> str:
        """Hash of all that decides the resolution but the package index: it names the lock in the cache."""
        content = self.requirements.read_bytes() + b"\0" + self.base.read_bytes()
        inputs = [hashlib.sha256(content).hexdigest(), self.python_version, PLATFORM]
        return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:KEY_DIGITS]

    @property
    def path(self) -> Path:
        """The finished lock: a later deployment takes the same versions from it."""
        return self.cache / "locks" / f"{self.key}.txt"

    def resolve(self) -> Path:
        """Return the path of the lock, resolved by uv where it is not there yet. It may be empty.

        Raises ValueError for what is refused in the user's file, and with uv's words where nothing fits.
        """
        asked = self._asked()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.with_suffix(".lock"), LOCK_TIMEOUT_SECONDS):
            if not self.path.exists():
                text = lock_text(self._beside_base(asked))
                fresh = self.path.with_suffix(".partial")
                fresh.write_text(text, encoding="utf-8")
                fresh.replace(self.path)
        return self.path

    def _beside_base(self, asked: Mapping[str, frozenset[str]]) -> list[Pinned]:
        """Return the resolved packages that the base lacks, each with the hashes that the user allows."""
        base = read_lock(self.base.read_text(encoding="utf-8"))
        found = read_lock(self._compile(base))
        lacking = []
        for name, package in found.items():
            provided = base.get(name, base.get(TENSORFLOW[0]) if name == TENSORFLOW[1] else None)
            narrowed = self._narrowed(provided or package, asked.get(name, frozenset()))
            if provided is None:
                lacking.append(narrowed)
        return lacking

    def _narrowed(self, package: Pinned, allowed: frozenset[str]) -> Pinned:
        hashes = package.hashes & allowed if allowed else package.hashes
        if not hashes:
            raise ValueError(
                f"{VARIABLE}: {self.requirements} allows {package.name} only with other hashes than those of "
                f"{package.name}=={package.version}, which is the version for the hosts. "
                f"Edit {self.requirements}"
            )
        return Pinned(package.name, package.version, hashes)

    def _asked(self) -> dict[str, frozenset[str]]:
        """Return the hashes that the user's file gives for each package, or raise ValueError for a line."""
        asked: dict[str, frozenset[str]] = {}
        for number, line in logical_lines(self.requirements.read_text(encoding="utf-8")):
            words, hashes = without_hashes(line)
            problem, requirement = parsed(words)
            if requirement is None:
                raise ValueError(
                    f"{VARIABLE}: {self.requirements}, line {number}: {line!r} is refused ({problem}); "
                    f"{EXPECTED}: hosts install offline what a hash names. Edit {self.requirements}"
                )
            name = normalized(requirement.name)
            asked[name] = asked.get(name, frozenset()) | hashes
        return asked

    def _compile(self, base: Mapping[str, Pinned]) -> str:
        """Return uv's lock of the user's file with the base's packages as constraints."""
        version = base[TENSORFLOW[0]].version if TENSORFLOW[0] in base else None
        with tempfile.TemporaryDirectory() as directory:
            constraints = Path(directory) / "tensorflow.txt"
            constraints.write_text(f"{TENSORFLOW[1]}=={version}\n" if version else "", encoding="utf-8")
            done = subprocess.run(
                [
                    str(Path(sys.executable).parent / "uv"),
                    *["pip", "compile", "--quiet", "--only-binary=:all:", "--generate-hashes"],
                    *["--strip-extras", "--no-header", "--no-annotate"],
                    *[f"--python-version={self.python_version}", f"--python-platform={PLATFORM}"],
                    *[f"--constraints={self.base}", f"--constraints={constraints}", str(self.requirements)],
                ],
                cwd=directory,
                env={**pip_settings(), "UV_NO_CONFIG": "1", **os.environ},
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode:
            raise ValueError(self._failure(done.stderr.strip()))
        return done.stdout

    def _failure(self, said: str) -> str:
        if any(words in said for words in UNREACHED):
            return (
                f"{VARIABLE}: {self.requirements} cannot be resolved, because uv did not get what it asked a "
                "package index for. Put right the network, or pip's settings of this machine, which uv is "
                f"told (python -m pip config list). uv said:\n{said}"
            )
        return (
            f"{VARIABLE}: {self.requirements} cannot be resolved beside the packages that psfleet pins "
            f"({self.base}), which stay as they are. Edit {self.requirements}. uv said:\n{said}"
        )


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that say something, joined at backslashes, and the number of the first of each."""
    begun, start = "", 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        start = start if begun else number
        begun += line
        if begun.endswith("\\"):
            begun = begun[:-1] + " "
            continue
        said = re.sub(r"(^|\s)#.*$", "", begun).strip()
        begun = ""
        if said:
            yield start, said


def without_hashes(line: str) -> tuple[str, frozenset[str]]:
    """Return a line without its `--hash` options, and the hashes that they give."""
    hashes = frozenset(re.findall(r"--hash[= ]sha256:([0-9a-f]{64})", line))
    return re.sub(r"\s+--hash[= ]sha256:[0-9a-f]{64}", "", line).strip(), hashes


def parsed(line: str) -> tuple[str, Requirement | None]:
    """Return a line's requirement, or what is wrong with it."""
    if line.startswith("-"):
        return f"the option {re.split('[= ]', line)[0]}", None
    if re.match(r"[./~]|[A-Za-z+]+://", line) or re.search(r"\.(whl|zip|tar\.gz)$", line):
        return "a path or a URL", None
    try:
        requirement = Requirement(line)
    except InvalidRequirement as error:
        return str(error).splitlines()[0], None
    return ("a URL", None) if requirement.url else ("", requirement)


def pip_settings() -> dict[str, str]:
    """Return pip's settings of where packages are and how they are reached, as uv's environment variables."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, str] = {}
    for line in done.stdout.splitlines():  # sections come in the order in which the later one wins
        name, _, value = line.partition("=")
        variable = SETTINGS.get(name.rpartition(".")[2])
        if variable:
            text = str(ast.literal_eval(value))
            separator = SEPARATORS.get(variable)
            found[variable] = separator.join(text.split()) if separator else text
    if "UV_INDEX" in found:  # as pip does: all indexes are one
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return found
