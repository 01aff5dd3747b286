"""The description of each operating system is complete, and is in its own file alone."""

import re
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from plugins.module_utils.checks.gpu_checks import gpu_chain
from plugins.module_utils.checks.host_checks import HostNeeds, host_chain
from plugins.module_utils.facts.driver_packages import plan_installation
from plugins.module_utils.facts.host_facts import MESH_PROGRAMS, PROGRAMS, Distribution, read_host_facts
from plugins.module_utils.facts.nvidia import GpuFacts
from plugins.module_utils.systems import SYSTEMS, system_of
from plugins.module_utils.systems.debian import DEBIAN
from plugins.module_utils.systems.system import Driver, Packages, System
from psfleet.run.host_answers import checked
from tests.plugins.module_utils.recorded_hosts import ALL_PROGRAMS, ROCKY_9
from tests.repository import ROOT

FOLDER = ROOT / "plugins" / "module_utils" / "systems"
EVERY = [pytest.param(system, id=name) for name, system in SYSTEMS.items()]
# Fields that may be empty: a driver may need no compiler, and no package of it may be signed.
MAY_BE_EMPTY = {"tested", "untested", "signed", "compiling"}
# This role makes container hosts of Debian; it does not run on other systems.
OF_DEBIAN = ROOT / "roles" / "practice_hosts"


def empty(value: object) -> list[str]:
    """Return the empty fields, also those of nested values."""
    if not is_dataclass(value):
        return []
    found = []
    for field in fields(value):
        own = getattr(value, field.name)
        if not own and field.name not in MAY_BE_EMPTY:
            found.append(field.name)
        found += empty(own)
    return found


@pytest.mark.parametrize("system", EVERY)
def test_the_description_of_a_system_is_complete(system: System) -> None:
    assert empty(system) == []
    assert set(system.programs) == {*PROGRAMS, *MESH_PROGRAMS, "wireguard-go"}
    assert system.tested or system.untested
    assert not {*system.tested} & {*system.untested}
    assert Path(system.sshd_directory).is_absolute()
    assert (ROOT / "roles/nvidia_cuda/tasks" / f"install_{system.packages.manager}.yml").is_file()
    documented = yaml.safe_dump(system.for_roles)
    assert yaml.safe_load(documented) == system.for_roles  # as it comes from a host


@pytest.mark.parametrize("system", EVERY)
def test_the_role_documents_the_driver_packages_that_it_installs(system: System) -> None:
    page = (ROOT / "roles/nvidia_cuda/README.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith(f"| {system.name} ")]
    named = [name for name in system.driver.packages if not name.startswith(system.driver.headers)]
    assert f"| `{' '.join(named)}`, the kernel's headers |" in row


def test_every_described_system_is_registered_under_its_file_name() -> None:
    modules = [import_module(f"plugins.module_utils.systems.{path.stem}") for path in FOLDER.glob("[!_]*.py")]
    known = {value.identity for each in modules for value in vars(each).values() if isinstance(value, System)}
    assert known == {*SYSTEMS}
    assert all((FOLDER / f"{identity}.py").is_file() for identity in known)


@pytest.mark.parametrize(
    ("identity", "like", "system"),
    [
        ("debian", (), "debian"),
        ("ubuntu", ("debian",), "ubuntu"),
        ("linuxmint", ("ubuntu", "debian"), "ubuntu"),
        ("raspbian", ("debian",), "debian"),
        ("rocky", ("rhel", "centos", "fedora"), None),
    ],
)
def test_a_system_is_recognised_by_its_name_or_by_its_base(
    identity: str, like: tuple[str, ...], system: str | None
) -> None:
    found = system_of(Distribution(identity, "1", like, identity))
    assert (found.identity if found else None) == system
    assert found is None or not found.is_release(Distribution(identity, "1", like, identity))


def test_an_added_system_is_used_by_checks_and_roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The added system has another package manager and another service; no other code changes."""
    packages = Packages("dnf", "dnf install", "dnf makecache", tuple)
    driver = Driver(("nvidia-open",), "kernel-devel-", "add a source", "nvidia-driver-cuda")
    made = replace(DEBIAN, identity="rhel", name="RHEL", tested=(), untested=("9",), packages=packages)
    made = replace(made, sshd_service="sshd", driver=driver, programs={"sshd": "openssh-server"})
    monkeypatch.setitem(SYSTEMS, "rhel", made)
    programs = [program for program in ALL_PROGRAMS if program != "sshd"]
    host = replace(ROCKY_9, programs=programs, pythons=["3.11"]).lay_out(tmp_path)
    facts = read_host_facts(host, "x86_64")
    (check,) = [check for check in host_chain(facts, HostNeeds()) if check.name == "system"]
    assert check.remedy == "on the host: sudo dnf install openssh-server"
    found = replace(facts, missing_programs=(), distribution=Distribution("rhel", "9.5", (), "RHEL 9.5"))
    assert host_chain(found, HostNeeds())[0].found == "RHEL 9.5 (supported, but not tested)"
    plan = plan_installation(GpuFacts(kernel="5.14.0"), found.distribution, made, [])
    assert plan.refusal == (
        "the host's package sources have no nvidia-open: add a source, then `dnf makecache`; or name other "
        "packages in nvidia_cuda_driver_packages"
    )
    bare = GpuFacts(bus=("0",), bus_drivers=("",), kernel="5.14.0", module_kernels=("5.0",))
    task = {"job": "worker", "index": 0, "host": "node1", "gpus": [0]}
    assert "`dnf install kernel-devel-5.14.0`" in gpu_chain(bare, [task], "x86_64", made)[1].remedy
    answer = {"environment": "cpu-python3.11-x86_64", "python": "/usr/bin/python3.11"}
    kept = checked("host_requirements", {**answer, "system": made.for_roles}, {})
    assert kept["system"]["sshd_service"] == "sshd"


def words_of_systems() -> set[str]:
    """Return names that belong to one system: packages, their commands, services and directories."""
    words = set()
    for system in SYSTEMS.values():
        packages = {*system.programs.values(), *system.driver.packages, system.driver.headers}
        # A package with the name of its program does not identify a system.
        words |= {name.partition("{")[0] for name in packages} - {*system.programs, *PROGRAMS}
        words |= {system.packages.install.split()[0], system.sshd_directory}
        words |= {f"{system.sshd_service}.service", system.driver.smi, system.identity, system.name}
    return words - {"systemd", "coreutils", "nftables", "nvidia-smi", "nvidia-modprobe"}


# Programs and units with one name everywhere, such as nvidia-smi and nftables.service, are allowed.
WORDS = sorted(words_of_systems() | {"apt", "apt-get", "dpkg", "dnf", "yum", "ssh.service", "sshd.service"})


def code_in(text: str) -> str:
    """Return a file of YAML or a template without its comments."""
    return re.sub(r"(?m)^\s*#.*$", "", text)


@pytest.mark.parametrize("folder", ["tasks", "vars", "defaults", "handlers", "templates"])
def test_no_role_contains_a_name_that_belongs_to_one_system(folder: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}: {word}"
        for path in sorted(ROOT.glob(f"roles/*/{folder}/*"))
        for word in WORDS
        if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", code_in(path.read_text()))
        and OF_DEBIAN not in path.parents
        and not path.name.startswith("install_")
        # NVIDIA's service has the name of its package.
        and (word, folder) != ("nvidia-persistenced", "templates")
    }
    assert found == set()


def test_only_the_code_of_a_system_names_its_packages() -> None:
    """The advice of a check must name packages of the host's own system."""
    folders = ("trainer", "plugins/module_utils", "plugins/action", "plugins/modules", "psfleet")
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    others = [path for path in files if FOLDER not in path.parents]
    told = re.compile(r"\bapt-get\b|\bopenssh-|\bwireguard-tools\b|\blinux-headers-|\bsources\.list\b")
    assert len(others) > 100
    assert [str(path.relative_to(ROOT)) for path in others if told.search(path.read_text())] == []
