"""The collection, installed from its archive into another Ansible project."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
import yaml

from plugins.module_utils.content_directory import content_hash
from tests.repository import ROOT

SAFE = "inject_facts_as_vars = False\n"
BIN = Path(sys.executable).parent
INSTALLED = Path("collections/ansible_collections/psfleet/cluster")


def own_address() -> str:
    """Return the address from which this machine sends to others; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("192.0.2.1", 9))
        return str(sender.getsockname()[0])


# One ps and three workers on this machine, which passes for two hosts, in words of the project's own.
INVENTORY = {
    "tf_cluster": {
        "vars": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable},
        "children": {
            "ps": {"hosts": {"here": {"ansible_host": own_address()}}},
            "worker": {
                "hosts": {"here": {"trainer_worker_tasks": 2}, "also": {"ansible_host": socket.gethostname()}}
            },
        },
    }
}
PLAYBOOK = [{"import_playbook": "psfleet.cluster.doctor"}]


def typed(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the project; nothing of this repository's configuration reaches it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=project,
        env=kept | {"ANSIBLE_NOCOLOR": "1", "PSFLEET_CACHE": str(project / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    settings = f"[defaults]\ncollections_path = collections\ninventory = hosts.yml\n{SAFE}"
    (folder / "ansible.cfg").write_text(settings)
    (folder / "hosts.yml").write_text(yaml.safe_dump(INVENTORY))
    (folder / "site.yml").write_text(json.dumps(PLAYBOOK))
    for command in (
        ("ansible-galaxy", "collection", "build", str(ROOT)),
        ("ansible-galaxy", "collection", "install", "psfleet-cluster-0.1.0.tar.gz", "-p", "collections"),
    ):
        done = typed(folder, *command, *(["--offline"] if "install" in command else []))
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_a_playbook_of_another_project_checks_its_hosts_and_keeps_runs_in_the_project(project: Path) -> None:
    done = typed(project, "ansible-playbook", "site.yml", "-v")
    said = done.stdout + done.stderr
    # Whatever this machine lacks, the module was shipped with all its imports, and ran.
    assert "HOST  SYSTEM  PROCESSOR  LIBC  PYTHON" in said
    assert "not reached" not in said
    for ports in ("1 of 1 port", "3 of 3 ports"):
        assert f"peers: reaches {ports} of 1 other host, and is reached" in said
    for arguments in (["--check"], ["--limit", "here"]):
        said = typed(project, "ansible-playbook", "site.yml", *arguments).stdout
        assert "PORTS" in said
        assert "PEERS" not in said, "nobody listens"
    done = typed(project, "ansible-playbook", "psfleet.cluster.verify")
    assert f"There is no run in {project}/runs yet" in done.stdout + done.stderr


def test_missing_settings_are_listed_at_once_and_those_for_safety_are_required(project: Path) -> None:
    configuration = project / "ansible.cfg"
    safe = configuration.read_text()
    unsafe = (
        "strategy = free\nfact_caching = jsonfile\n[ssh_connection]\nhost_key_checking = no\nretries = 1\n"
    )
    configuration.write_text(safe.replace(SAFE, "") + unsafe)
    try:
        done = typed(project, "ansible-playbook", "psfleet.cluster.status")
    finally:
        configuration.write_text(safe)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2
    assert "inject_facts_as_vars is true, by Ansible's default: a compromised host" in said
    assert f"host_key_checking is false, by {configuration}: an attacker on the network" in said
    assert f"strategy is free, by {configuration}: a host would begin" in said
    assert f"fact_caching is jsonfile, by {configuration}: answers of an earlier run" in said
    assert "Query the tasks" not in said
    # The missing settings for safety and all others are in one block to copy, without escapes.
    lines = done.stdout.partition(f"To be copied into {configuration}")[2].split("\n\n")[1].splitlines()
    assert {"inject_facts_as_vars = False", "host_key_checking = True", "pipelining = True"} < {*lines}
    assert not [line for line in lines if line.startswith(("retries", "inventory", "collections_path"))]
    done = typed(project, "ansible-playbook", "psfleet.cluster.verify")
    assert "for speed and for what is shown" in done.stdout
    assert "There is no run in" in done.stdout + done.stderr, "they do not keep a playbook from beginning"


def test_every_playbook_is_found_by_its_full_name(project: Path) -> None:
    names = [f"psfleet.cluster.{path.stem}" for path in (ROOT / "playbooks").glob("*.yml")]
    done = typed(project, "ansible-playbook", "--syntax-check", *names)
    assert (done.returncode, done.stdout.count("playbook: ")) == (0, len(names)), done.stderr


def test_the_collection_contains_the_same_release(project: Path) -> None:
    assert content_hash(project / INSTALLED / "trainer") == content_hash(ROOT / "trainer")


def test_the_collection_contains_only_the_product(project: Path) -> None:
    names = {path.name for path in (project / INSTALLED).iterdir()}
    assert {"plugins", "psfleet", "roles", "trainer", "playbooks", "docs"} <= names
    assert not names & {"tests", "tools", "molecule", "runs", "collections", ".venv", ".state", ".git"}
    assert [path.name for path in (project / INSTALLED / "inventory").iterdir()] == ["sample"]


def test_the_collection_requires_the_versions_that_the_playbooks_check() -> None:
    checked = dict[str, str]()
    for playbook in (ROOT / "playbooks").glob("*.yml"):
        bounds = re.findall(r'([\w.-]+): {oldest: "(.+)", first_unsupported: "(.+)"}', playbook.read_text())
        checked |= {name: f">={oldest},<{newest}" for name, oldest, newest in bounds}
    asked = yaml.safe_load((ROOT / "galaxy.yml").read_text())["dependencies"]
    runtime = yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["requires_ansible"]
    assert checked == {name: bounds for name, bounds in asked.items() if name != "community.general"} | {
        "ansible-core": runtime.replace(".0,", ",")
    }


def test_the_collection_has_the_version_of_the_python_project(project: Path) -> None:
    told = json.loads((project / INSTALLED / "MANIFEST.json").read_text())["collection_info"]["version"]
    assert told == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


KINDS = {
    "module": ("plugins/modules/*.py", "plugins/action/*.py"),
    "filter": ("plugins/filter/*.yml",),
    "lookup": ("plugins/lookup/*.py",),
    "callback": ("plugins/callback/*.py",),
    "role": ("roles/*",),
}


@pytest.mark.parametrize("kind", KINDS)
def test_ansible_doc_shows_all_plugins_and_roles(project: Path, kind: str) -> None:
    """Actions have the documentation of the module of their name."""
    offered = {f"psfleet.cluster.{path.stem}" for pattern in KINDS[kind] for path in ROOT.glob(pattern)}
    done = typed(project, "ansible-doc", "--type", kind, "--list", "--json", "psfleet.cluster")
    assert done.stderr == ""
    listed = json.loads(done.stdout)
    assert set(listed) == offered - {"psfleet.cluster.__init__"}
    assert "UNDOCUMENTED" not in listed.values()
    shown = typed(project, "ansible-doc", "--type", kind, *listed)
    assert (shown.returncode, shown.stderr) == (0, "")
