"""Facts of a host, from the files and programs of several systems and of this one."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from plugins.module_utils.facts.host_facts import (
    ENVIRONMENT,
    MESH_PROGRAMS,
    PROGRAMS,
    Distribution,
    HostFacts,
    Interpreter,
    parse_avx,
    parse_os_release,
    parse_version,
    read_host_facts,
    run_program,
)
from tests.plugins.module_utils.recorded_hosts import ALPINE, DEBIAN_12, ROCKY_9, UBUNTU_2404, RecordedHost


def test_the_facts_of_a_host_are_read_below_its_root(tmp_path: Path) -> None:
    facts = read_host_facts(DEBIAN_12.lay_out(tmp_path), "x86_64")
    assert facts == HostFacts(
        distribution=Distribution("debian", "12", (), "Debian GNU/Linux 12 (bookworm)"),
        machine="x86_64",
        processor="AMD EPYC",
        avx=True,
        libc="glibc",
        libc_version=(2, 36),
        pythons=(Interpreter(f"{tmp_path}/usr/bin/python3.11", "3.11"),),
        default_python="3.11",
        systemd=252,
        booted=True,
        missing_programs=(),
        missing_for_mesh=("wg", "wg-quick", "ip", "wireguard-go"),
        memory_bytes=16 * 2**30,
        memory_limit_bytes=None,
    )


def test_the_base_of_a_distribution_and_the_limit_of_a_control_group_are_read(tmp_path: Path) -> None:
    root = replace(ROCKY_9, files={"sys/fs/cgroup/memory.max": "1024\n"}).lay_out(tmp_path)
    (root / "usr/lib").mkdir(parents=True)
    (root / "etc/os-release").rename(root / "usr/lib/os-release")
    facts = read_host_facts(root, "x86_64")
    assert facts.distribution.identity == "rocky"
    assert facts.distribution.like == ("rhel", "centos", "fedora")
    assert facts.memory_limit_bytes == 1024


def test_a_host_without_glibc_and_systemd_is_read(tmp_path: Path) -> None:
    facts = read_host_facts(ALPINE.lay_out(tmp_path), "x86_64")
    assert (facts.libc, facts.libc_version) == ("musl", ())
    assert (facts.systemd, facts.booted) == (None, False)
    assert facts.missing_programs == ("systemctl",)


def test_pythons_are_known_by_the_version_that_they_print(tmp_path: Path) -> None:
    root = replace(UBUNTU_2404, pythons=["3.12", "3.9", "3.10"]).lay_out(tmp_path)
    other = root / "usr/local/bin/python3.13"
    other.parent.mkdir(parents=True)
    other.write_text("#!/bin/sh\necho 3.8\n")
    other.chmod(0o755)
    (root / "usr/bin/python3.12-config").write_text("#!/bin/sh\necho 3.12\n")
    facts = read_host_facts(root, "x86_64")
    assert [python.version for python in facts.pythons] == ["3.9", "3.10", "3.12"]
    assert facts.default_python == "3.12"


def test_an_empty_system_is_read_without_an_error(tmp_path: Path) -> None:
    linux, nothing = Distribution("linux", "", (), "linux"), ("", None, "", (), (), "", None, False)
    lacking = (PROGRAMS, (*MESH_PROGRAMS, "wireguard-go"))
    assert read_host_facts(tmp_path, "riscv64") == HostFacts(linux, "riscv64", *nothing, *lacking, None, None)


@pytest.mark.parametrize("name", ["modules.builtin", "modules.dep"])
def test_a_kernel_with_wireguard_needs_no_wireguard_go(tmp_path: Path, name: str) -> None:
    listed = tmp_path / "lib/modules" / os.uname().release / name
    listed.parent.mkdir(parents=True)
    listed.write_text("kernel/drivers/net/wireguard/wireguard.ko: kernel/net/ipv4/udp_tunnel.ko\n")
    assert read_host_facts(tmp_path).missing_for_mesh == MESH_PROGRAMS
    listed.unlink()
    (tmp_path / "sys/module/wireguard").mkdir(parents=True)
    assert read_host_facts(tmp_path).missing_for_mesh == MESH_PROGRAMS


def test_the_facts_of_this_machine_are_read() -> None:
    facts = read_host_facts()
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert facts.machine == os.uname().machine
    assert facts.memory_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert version in [python.version for python in facts.pythons]
    assert f"glibc {'.'.join(map(str, facts.libc_version))}" == os.confstr("CS_GNU_LIBC_VERSION")
    assert read_host_facts(programs=["sh", "no-such-program"]).missing_programs == ("no-such-program",)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "linux"),
        ("ID=arch\n", "arch"),
        ('# a comment\nID=arch\nPRETTY_NAME="Arch \\"Linux\\""\n', 'Arch "Linux"'),
        ("#ID=gentoo\nID=arch\nPRETTY_NAME=Arch\\ =\\ Linux=2\n", "Arch = Linux=2"),
        ("PRETTY_NAME=Arch Linux\n", "Arch Linux"),
        ("ID=odd\nPRETTY_NAME='not closed\n", "'not closed"),
        ("no line of the kind", "linux"),
    ],
)
def test_the_name_of_a_distribution_is_read_as_a_shell_would(text: str, name: str) -> None:
    assert parse_os_release(text).name == name


def test_the_flag_avx2_does_not_count_as_avx() -> None:
    assert parse_avx("flags\t\t: fpu avx sse\n") is True
    assert parse_avx("flags\t\t: fpu avx2 sse\n") is False
    assert parse_avx("Features\t: fp asimd\n") is None


def test_an_invalid_version_reads_as_empty() -> None:
    assert parse_version("glibc", "undefined") == ()
    assert parse_version("glibc", "glibc 2.9") == (2, 9)
    assert parse_version("systemd", "systemd 257 (257.9-1~deb13u1)\n+PAM") == (257,)
    assert parse_version("systemd", "runit") == ()


def test_a_program_that_hangs_or_fails_gives_no_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugins.module_utils.facts.host_facts.SECONDS_TO_ANSWER", 0.3)
    root = RecordedHost("debian-12", ["3.11"], "2.36", "252").lay_out(tmp_path)
    (root / "usr/bin/python3.11").write_text("#!/bin/sh\nsleep 1.5\necho 3.11\n")
    (root / "usr/bin/getconf").write_text("#!/bin/sh\necho glibc 2.36\nexit 1\n")
    facts = read_host_facts(root, "x86_64")
    assert (facts.pythons, facts.default_python) == ((), "")
    assert facts.libc == ""


def test_a_program_runs_in_a_clean_environment_and_any_bytes_it_prints_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "of-the-user.so")
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nenv\ncat\nprintf '\\377' >&2\nexit 7\n")
    program.chmod(0o755)
    status, printed, complaint = run_program([str(program)], 10.0)
    assert (status, complaint) == (7, "\ufffd")
    told = dict(line.split("=", 1) for line in printed.splitlines())
    assert {name: told[name] for name in ENVIRONMENT} == ENVIRONMENT
    assert "LD_PRELOAD" not in told
