"""Reads the facts of a host that decide whether it can be part of a cluster, and changes nothing.

Everything is read below a `root`, so that copies of other hosts' files can be read, too. The code needs only
Python 3.8, as Ansible does, because the host may be too old.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..host.memory import parse_memory, read_memory_limit
from ..host.whole_files import text_of

# The system's own directories. A unit does not see the directories that a user puts before them in PATH.
SYSTEM_DIRECTORIES = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
ENVIRONMENT = {"PATH": ":".join(f"/{name}" for name in SYSTEM_DIRECTORIES), "LC_ALL": "C"}
# Programs that roles and units call, besides those that Ansible itself needs.
PROGRAMS = ("systemctl", "sshd", "ssh", "ssh-keygen", "nft", "tail", "sleep", "cp", "mv")
# Programs for WireGuard; if the kernel lacks WireGuard, wireguard-go is needed, too.
MESH_PROGRAMS = ("wg", "wg-quick", "ip")
SECONDS_TO_ANSWER = 20.0


@dataclass(frozen=True)
class Distribution:
    """A Linux distribution, from /etc/os-release.

    `identity` is like "debian", `version` is like "12" ("" for a rolling release). `like` are the
    distributions from which it is made. `name` is for people: "Debian GNU/Linux 12 (bookworm)".
    """

    identity: str
    version: str
    like: tuple[str, ...]
    name: str


@dataclass(frozen=True)
class Interpreter:
    """A Python that starts: its path, and its version such as "3.11"."""

    path: str
    version: str


@dataclass(frozen=True)
class HostFacts:
    """The facts of a host.

    - `machine`: the processor as `uname -m` prints it, such as "x86_64". `processor`: the name of its model,
      "" if unknown. `avx`: whether it has AVX, None if unknown.
    - `libc`: "glibc", "musl" or "" (unknown). `libc_version`: like (2, 36), () if it is not glibc.
    - `pythons`: the system's, the oldest first. `default_python`: the version of python3, such as "3.11", ""
      without it.
    - `systemd`: its version, such as 252, None without it. `booted`: whether the host was booted with
      systemd.
    - `missing_programs`: the names of lacking programs. `missing_for_mesh`: the names of those that only
      WireGuard needs.
    - `memory_bytes`: the host's memory, None if unknown. `memory_limit_bytes`: the limit of the control
      group, None without a limit.
    """

    distribution: Distribution
    machine: str
    processor: str
    avx: bool | None
    libc: str
    libc_version: tuple[int, ...]
    pythons: tuple[Interpreter, ...]
    default_python: str
    systemd: int | None
    booted: bool
    missing_programs: tuple[str, ...]
    missing_for_mesh: tuple[str, ...]
    memory_bytes: int | None
    memory_limit_bytes: int | None


def read_host_facts(
    root: Path = Path("/"), machine: str = "", programs: Sequence[str] = PROGRAMS
) -> HostFacts:
    """Return the facts of this host, or of a copy of a host's files below `root`.

    `machine` is the processor as `uname -m` prints it; "" means this machine's. `programs` are the names of
    the programs that must exist; those that do not are in `missing_programs`.
    """
    cpuinfo = text_of(root / "proc/cpuinfo")
    machine = machine or os.uname().machine
    libc_version = parse_version("glibc", _output_of(find_program(root, "getconf"), "GNU_LIBC_VERSION"))
    systemctl = _output_of(find_program(root, "systemctl"), "--version")
    musl = "musl" if any(root.glob("lib/ld-musl-*")) else ""
    return HostFacts(
        distribution=read_distribution(root),
        machine=machine,
        processor=first_value(cpuinfo, "model name"),
        avx=parse_avx(cpuinfo),
        libc="glibc" if libc_version else musl,
        libc_version=libc_version,
        pythons=read_pythons(root),
        default_python=_version_of(find_program(root, "python3")),
        systemd=next(iter(parse_version("systemd", systemctl)), None),
        booted=(root / "run/systemd/system").is_dir(),
        missing_programs=_missing(root, programs),
        missing_for_mesh=_missing(
            root, MESH_PROGRAMS if _wireguard(root) else (*MESH_PROGRAMS, "wireguard-go")
        ),
        memory_bytes=parse_memory(text_of(root / "proc/meminfo")),
        memory_limit_bytes=read_memory_limit(root),
    )


def read_distribution(root: Path = Path("/")) -> Distribution:
    """Return the distribution of this host, or of a copy of a host's files below `root`.

    Without os-release, its identity is "linux".
    """
    return parse_os_release(text_of(root / "etc/os-release") or text_of(root / "usr/lib/os-release"))


def parse_os_release(text: str) -> Distribution:
    """Return the distribution that the text of /etc/os-release describes; without ID, it is "linux".

    Values may be quoted as in a shell.
    """
    values = {}
    for line in text.splitlines():
        key, separator, value = line.strip().partition("=")
        if separator:
            values[key] = _unquoted(value)
    identity = values.get("ID", "linux")
    version = values.get("VERSION_ID", "")
    name = values.get("PRETTY_NAME") or f"{identity} {version}".strip()
    return Distribution(identity, version, tuple(values.get("ID_LIKE", "").split()), name)


def _unquoted(value: str) -> str:
    try:
        return " ".join(shlex.split(value))
    except ValueError:  # a quote that is not closed
        return value


def first_value(text: str, key: str) -> str:
    """Return the value of the first line "key : value" with this key, stripped; "" if there is none.

    `text` is a file of /proc, such as /proc/cpuinfo.
    """
    match = re.search(rf"^{key}[ \t]*:[ \t]*(.*?)[ \t]*$", text, re.MULTILINE)
    return match[1] if match else ""


def parse_avx(cpuinfo: str) -> bool | None:
    """Return whether the processor has AVX; None if the text of /proc/cpuinfo has no line "flags"."""
    flags = first_value(cpuinfo, "flags").split()
    return "avx" in flags if flags else None


def parse_version(program: str, words: str) -> tuple[int, ...]:
    """Return (2, 36) for "glibc 2.36" and (252,) for "systemd 252 (252.38-1)"; () for anything else."""
    match = re.match(rf"{program} ([0-9]+)(?:\.([0-9]+))?", words)
    return tuple(int(part) for part in match.groups() if part) if match else ()


def read_pythons(root: Path) -> tuple[Interpreter, ...]:
    """Return each version of Python in the system's directories that starts, the oldest first.

    Only programs such as python3.11 count; of several programs of one version, the first in the PATH.
    """
    found: dict[str, Interpreter] = {}
    for directory in SYSTEM_DIRECTORIES:
        for path in sorted((root / directory).glob("python3.*")):
            match = re.fullmatch(r"python(3\.[0-9]+)", path.name)
            if match and match[1] not in found and _version_of(str(path)) == match[1]:
                found[match[1]] = Interpreter(str(path), match[1])
    return tuple(sorted(found.values(), key=lambda python: int(python.version[len("3.") :])))


def _version_of(interpreter: str | None) -> str:
    """Return the version that an interpreter prints, such as "3.11"; "" if it does not start."""
    return _output_of(interpreter, "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")


def _output_of(program: str | None, *arguments: str) -> str:
    """Return a program's standard output, stripped; "" if it fails, or if `program` is None."""
    status, printed, _ = (
        (1, "", "") if program is None else run_program([program, *arguments], SECONDS_TO_ANSWER)
    )
    return printed.strip() if status == 0 else ""


def run_program(command: Sequence[str], seconds: float) -> tuple[int, str, str]:
    """Run a program; return (exit status, standard output, standard error).

    Return (127, "", why) if it cannot be run, and (124, "", why) if it does not end within `seconds`; it is
    killed then.
    """
    name, streams = Path(command[0]).name, subprocess.PIPE
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=streams,
            stderr=streams,
            errors="replace",
            env=ENVIRONMENT,
        )
    except OSError as error:
        return 127, "", f"{name} cannot be run: {error.strerror}"
    try:
        printed, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        # A process that hangs in a driver cannot be killed; so this does not wait for its end.
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
        return 124, "", f"{name} did not answer within {seconds:g} s"
    return process.returncode, printed, complaint


def _missing(root: Path, programs: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in programs if find_program(root, name) is None)


def _wireguard(root: Path) -> bool:
    """Return whether the kernel has WireGuard, built in, as a module, or loaded."""
    modules = root / "lib/modules" / os.uname().release
    listed = "".join(text_of(modules / name) for name in ("modules.dep", "modules.builtin"))
    return (root / "sys/module/wireguard").is_dir() or "/wireguard.ko" in listed


def find_program(root: Path, name: str) -> str | None:
    """Return the path of a program in the system's directories below `root`; None if there is none."""
    return shutil.which(name, path=":".join(str(root / folder) for folder in SYSTEM_DIRECTORIES))
