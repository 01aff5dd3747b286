"""The description of each operating system is complete, and is in its own file alone."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from plugins.module_utils.checks.gpu_checks import gpu_checks
from plugins.module_utils.checks.host_checks import HostNeeds, host_checks
from plugins.module_utils.facts.driver_packages import plan_installation
from plugins.module_utils.facts.host_facts import PROGRAMS, Distribution, read_host_facts
from plugins.module_utils.facts.nvidia import GpuFacts
from plugins.module_utils.systems import Systems, read_systems
from plugins.module_utils.systems.system import System
from psfleet.inventory.described_systems import described_systems
from psfleet.inventory.problems import InventoryError
from psfleet.run.host_answers import UnusableError, checked
from tests.plugins.module_utils.described import DESCRIBED, KNOWN, SYSTEMS
from tests.plugins.module_utils.recorded_hosts import ALL_PROGRAMS, DEBIAN_12
from tests.repository import ROOT

FOLDER = ROOT / "roles" / "host_look" / "files" / "systems"
EVERY = [pytest.param(system, id=name) for name, system in SYSTEMS.items()]
# This role makes container hosts of Debian; it does not run on other systems.
OF_DEBIAN = ROOT / "roles" / "practice_hosts"


@pytest.mark.parametrize("system", EVERY)
def test_each_system_says_which_releases_are_tested(system: System) -> None:
    assert system.tested or system.untested
    assert not {*system.tested} & {*system.untested}


@pytest.mark.parametrize("system", EVERY)
def test_the_role_documents_the_driver_packages_that_it_installs(system: System) -> None:
    page = (ROOT / "roles/nvidia_cuda/README.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith(f"| {system.name} ")]
    assert system.driver
    named = [name for name in system.driver.packages if not system.driver.is_headers(name)]
    assert f"| `{' '.join(named)}`, the kernel's headers |" in row


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
    found = KNOWN.of(Distribution(identity, "1", like, identity))
    assert (found.identity if found else None) == system
    assert found is None or not found.is_release(Distribution(identity, "1", like, identity))


def added(folder: Path, file: str, **changes: object) -> Systems:
    """Return the systems of a copy of the role's folder with one more file: Debian's, with these changes."""
    made = shutil.copytree(FOLDER, folder / "systems")
    content = {**yaml.safe_load((FOLDER / "Debian.yml").read_text()), **changes}
    content = {key: value for key, value in content.items() if value is not None}
    (made / file).write_text(yaml.safe_dump(content))
    return read_systems(described_systems(made))


def test_a_file_alone_adds_a_system(tmp_path: Path) -> None:
    """The added system is Debian under another name, without packages of NVIDIA's driver."""
    systems = added(tmp_path, "Foo.yml", id="foo", name="Foo", tested=[], untested=["9"], nvidia_driver=None)
    programs = [program for program in ALL_PROGRAMS if program != "sshd"]
    host = replace(DEBIAN_12, programs=programs).lay_out(tmp_path)
    text = (host / "etc/os-release").read_text()
    others = re.sub(r"(?m)^(ID|VERSION_ID|PRETTY_NAME)=.*\n", "", text)
    (host / "etc/os-release").write_text(f"{others}ID=foo\nVERSION_ID=9.5\nPRETTY_NAME=Foo\n")
    facts = read_host_facts(host, "x86_64")
    check = host_checks(facts, HostNeeds(), systems)[0]
    assert (check.state, check.remedy) == ("failed", "on the host: sudo apt-get install openssh-server")
    found = replace(facts, missing_programs=())
    assert host_checks(found, HostNeeds(), systems)[0].found == "Foo (supported, but not tested)"
    assert host_checks(found, HostNeeds(), KNOWN)[0].state == "failed"
    system = systems.of(facts.distribution)
    assert system
    plan = plan_installation(GpuFacts(kernel="5.14.0"), facts.distribution, system, [])
    assert plan.refusal.startswith(
        "psfleet knows no packages of the driver for foo-9.5: name them in nvidia_cuda"
    )
    bare = GpuFacts(bus=("0",), bus_drivers=("",), kernel="5.14.0", module_kernels=("5.0",))
    task = {"job": "worker", "index": 0, "host": "node1", "gpus": [0]}
    assert gpu_checks(bare, [task], "x86_64", system)[1].remedy.startswith("install its headers and")
    assert gpu_checks(bare, [task], "x86_64", system)[2].state == "skipped"


def test_a_host_may_only_answer_what_a_described_system_says(tmp_path: Path) -> None:
    systems = added(tmp_path, "Foo.yml", id="foo", package_manager="dnf", sshd_service="sshd")
    described = described_systems(tmp_path / "systems")
    fact = {"environment": "cpu-python3.11-x86_64", "python": "/usr/bin/python3.11", "programs": {}}

    def kept(system: dict[str, str], asked: Mapping[str, object]) -> object:
        answer = {"ansible_facts": {"psfleet_requirements": {**fact, "system": system}}}
        return checked("host_facts", answer, {"requirements": {}, "systems": asked})["ansible_facts"]

    of_roles = systems.known["foo"].for_roles
    assert kept(of_roles, described) == {"psfleet_requirements": {**fact, "system": of_roles}}
    for asked, lie in [(DESCRIBED, of_roles), (described, {**of_roles, "sshd_service": "ssh; reboot"})]:
        with pytest.raises(UnusableError, match=r"system is \{.*; expected a known system"):
            kept(lie, asked)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sshd_servce": "x"}, "sshd_servce is no key of a system; did you mean sshd_service?"),
        ({"colour": "x"}, "colour is no key of a system; did you mean one of id, name, tested, "),
        (
            {"untested": [22.04]},
            "untested is '[22.04]'; expected a list of releases in quotes, such as [\"12\"]",
        ),
        ({"id": None}, "id is missing; expected the ID in the system's /etc/os-release, such as debian"),
        ({"id": "ubuntu"}, "id is 'ubuntu'; expected one that no other file has"),
        ({"name": 7}, "name is '7'; expected a text"),
        ({"programs": ["sshd"]}, "programs is \"['sshd']\"; expected programs, each with the package"),
        ({"programs": {"sshd": "sshd"}}, "programs.systemctl is missing; expected the package that has this"),
        ({"sshd_directory": "etc/ssh"}, "sshd_directory is 'etc/ssh'; expected an absolute path"),
        ({"sshd_service": "ssh; reboot"}, "sshd_service is 'ssh; reboot'; expected the name of sshd's unit"),
        ({"nvidia_driver": "x"}, "nvidia_driver is 'x'; expected keys and values"),
        ({"nvidia_driver": {"packages": []}}, "nvidia_driver.headers is missing; expected a text"),
        ({"nvidia_driver": {"smii": "x"}}, "nvidia_driver.smii is no key of a system; did you mean smi?"),
    ],
)
def test_a_wrong_description_is_refused_with_file_and_key(
    tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    with pytest.raises(InventoryError) as refused:
        added(tmp_path, "Zoo.yml", **{"id": "zoo", **changes})
    (problem,) = refused.value.problems
    assert problem.what.startswith(f"Zoo.yml: {says}")
    assert problem.cure == f"edit {tmp_path}/systems/Zoo.yml"


def test_a_description_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Zoo.yml").write_text("id: [\n")
    with pytest.raises(InventoryError) as refused:
        described_systems(tmp_path)
    assert refused.value.problems[0].what.startswith("Zoo.yml is no YAML: ")


def words_of_systems() -> set[str]:
    """Return names that belong to one system: packages, their commands, services and directories."""
    words = set()
    for system in SYSTEMS.values():
        assert system.driver
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
    others = list(files)
    told = re.compile(r"\bapt-get\b|\bopenssh-|\bwireguard-tools\b|\blinux-headers-|\bsources\.list\b")
    assert len(others) > 100
    assert [str(path.relative_to(ROOT)) for path in others if told.search(path.read_text())] == []
