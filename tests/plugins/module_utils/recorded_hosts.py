"""Hosts of several systems, laid out below a directory: their files, and what their programs answer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"
ALL_PROGRAMS = ("systemctl", "sshd", "ssh", "ssh-keygen", "nft", "tail", "sleep", "cp", "mv")


@dataclass(frozen=True)
class RecordedHost:
    """A host: the names of its recorded files, and the versions that its programs tell.

    `pythons` are versions, the first that of `python3`; `glibc` and `systemd` are "" where there is none.
    """

    os_release: str
    pythons: Sequence[str]
    glibc: str
    systemd: str
    cpuinfo: str = "epyc"
    machine: str = "x86_64"
    mem_total_kb: int = 16 * 2**20
    programs: Sequence[str] = ALL_PROGRAMS
    files: dict[str, str] = field(default_factory=dict)

    def lay_out(self, root: Path) -> Path:
        """Write the host's files and programs below `root`, and return it."""
        texts = {
            "etc/os-release": (RECORDED / "os-release" / self.os_release).read_text(),
            "proc/cpuinfo": (RECORDED / "cpuinfo" / self.cpuinfo).read_text(),
            "proc/meminfo": f"MemTotal:       {self.mem_total_kb} kB\nMemFree:         1000 kB\n",
            **self.files,
        }
        for name, text in texts.items():
            _write(root / name, text)
        for program in self.programs:
            _program(root / "usr/bin" / program, "")
        if self.systemd:
            version = f"systemd {self.systemd} ({self.systemd}.1-1)\n+PAM +AUDIT"
            _program(root / "usr/bin/systemctl", version, "--version")
            (root / "run/systemd/system").mkdir(parents=True)
        if self.glibc:
            _program(root / "usr/bin/getconf", f"glibc {self.glibc}", "GNU_LIBC_VERSION")
        for version in self.pythons:
            _program(root / f"usr/bin/python{version}", version)
        if self.pythons:
            (root / "usr/bin/python3").symlink_to(f"python{self.pythons[0]}")
        return root


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _program(file: Path, answer: str, asked: str = "") -> None:
    """Write a program that answers, where its first argument is what it is to be asked."""
    _write(file, f"#!/bin/sh\n[ -z '{asked}' ] || [ \"$1\" = '{asked}' ] && printf '%s\\n' '{answer}'\n")
    file.chmod(0o755)


DEBIAN_12 = RecordedHost("debian-12", ["3.11"], "2.36", "252")
DEBIAN_13 = RecordedHost("debian-13", ["3.13"], "2.41", "257")
DEBIAN_11 = RecordedHost("debian-11", ["3.9"], "2.31", "247")
UBUNTU_2204 = RecordedHost("ubuntu-22.04", ["3.10"], "2.35", "249")
UBUNTU_2404 = RecordedHost("ubuntu-24.04", ["3.12"], "2.39", "255")
MINT_22 = RecordedHost("linuxmint-22", ["3.12"], "2.39", "255")
ROCKY_9 = RecordedHost("rocky-9", ["3.9"], "2.34", "252")
ALPINE = RecordedHost(
    "alpine-3.19", ["3.11"], "", "", programs=ALL_PROGRAMS[1:], files={"lib/ld-musl-x86_64.so.1": ""}
)
