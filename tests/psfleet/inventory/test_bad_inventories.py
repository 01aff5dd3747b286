"""Bad inventories, each a file in bad/ with its answer, are refused with the problem and the place to edit.

Ansible reads each in this process; playbooks are started only for behaviour of their own.
"""

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.psfleet.inventory.checked import checked, hosts_file, written
from tests.psfleet.inventory.conftest import Preflight
from tests.repository import ROOT
from trainer.contract.model_files import MODEL_RULE

GOOD = hosts_file({"node1": {}}, {"node2": {}, "node3": {}})
BAD = sorted((Path(__file__).parent / "bad").iterdir())


@pytest.mark.parametrize("case", BAD, ids=lambda file: file.stem)
def test_a_bad_inventory_is_refused(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = yaml.safe_load(case.read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "cluster", content["inventory"])
    # Ansible keeps what it has found at a path, for all tests: a path is another in each.
    _, refusal = checked(tmp_path / content.get("source", "cluster"), content.get("command_line"))
    assert f"{refusal}\n" == content["says"].replace("<models>", MODEL_RULE.expected)


def test_a_playbook_reports_all_problems_whatever_the_limit_and_ends(preflight: Preflight) -> None:
    tree = hosts_file({"node1": {}}, {"node1": {"trainer_threads": "many"}})
    run = preflight(
        {"hosts.yml": tree}, "--limit", "node1", "-e", '{"trainer_worker_tasks": [{"port": 22}, {"gpu": 0}]}'
    )
    assert run.status == 2, run.output
    assert "The inventory has 3 problems. Nothing was touched.\n" in run.output
    where = "given with -e on the command line"
    assert re.search(r"\n1\. trainer_threads is 'many'; .*\n   edit \S+/hosts\.yml:9\n2\. ", run.output)
    assert re.search(rf"\n2\. trainer_worker_tasks\[0\]\.port is 22; .*\n   {where}\n", run.output)
    assert re.search(rf"\n3\. trainer_worker_tasks\[1\]\.gpu is 0; .* a list .*\n   {where}\n", run.output)


STRINGS = (
    "trainer_steps=7 trainer_learning_rate=0.5 trainer_optimizer=null trainer_ps_port=2300 "
    "trainer_worker_gpus=0,1 trainer_shard_data=yes"
)
SHOW = """---
- name: Check the inventory
  ansible.builtin.import_playbook: {repository}/playbooks/preflight_inventory.yml
- name: Look at the facts without reaching a host
  hosts: localhost:tf_cluster
  gather_facts: false
  tasks:
    - name: Show them
      ansible.builtin.debug:
        msg: >-
          {{{{ inventory_hostname }}}} sees {{{{ cluster_plan.tasks | map(attribute='host') | join(' ') }}}},
          {{{{ cluster_plan.ps_hosts }}}}, GPUs {{{{ cluster_plan.tasks[1].gpus }}}},
          {{{{ cluster_settings.tasks.worker0 | to_json }}}}, {{{{ cluster_settings.cluster.steps + 1 }}}},
          {{{{ cluster_paths.log_directory }}}}
"""


@pytest.mark.parametrize(
    ("options", "hosts"),
    [((), {"localhost", "node1", "node2", "node3"}), (("--limit", "node2", "--check"), {"node2"})],
)
def test_every_host_gets_the_whole_plan(
    tmp_path: Path, preflight: Preflight, options: tuple[str, ...], hosts: set[str]
) -> None:
    playbook = tmp_path / "show.yml"
    playbook.write_text(SHOW.format(repository=ROOT), encoding="utf-8")
    run = preflight({"hosts.yml": GOOD}, "-e", STRINGS, *options, playbook=str(playbook))
    assert run.status == 0, run.output
    printed = " ".join(run.output.split())  # Ansible folds long lines
    seen = re.findall(
        r'(\w+) sees node1 node2 node3, node1:2300, GPUs \[0, 1\], {"model": "mnist_mlp", "repl', printed
    )
    assert set(seen) == hosts
    for setting in ('"learning_rate": 0.5', '"shard_data": true', '"optimizer": null'):
        assert setting in printed
    assert ", 8, /var/log/psfleet" in printed


BOUNDS = [{"oldest": "2.19", "first_unsupported": "2.19.0"}, {"oldest": "9.0", "first_unsupported": "10"}]


@pytest.mark.parametrize("bounds", BOUNDS)
def test_an_ansible_that_is_too_new_or_too_old_is_refused(
    preflight: Preflight, bounds: dict[str, str]
) -> None:
    variables = json.dumps({"preflight_versions": {"ansible-core": bounds}})
    run = preflight({"hosts.yml": GOOD}, "-e", variables)
    assert run.status == 2
    expected = f"expected {bounds['oldest']} or newer, and older than {bounds['first_unsupported']}"
    assert re.search(rf"ansible-core is 2\.\d+\.\d+\S*; {re.escape(expected)}", run.output)


def test_an_unsupported_version_of_a_collection_is_named(
    preflight: Preflight, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = tmp_path / "collections/ansible_collections/containers/podman"
    collection.mkdir(parents=True)
    manifest = {"collection_info": {"namespace": "containers", "name": "podman", "version": "2.0.0"}}
    (collection / "MANIFEST.json").write_text(json.dumps(manifest))
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", f"{tmp_path}/collections:{ROOT}/collections")
    variables = json.dumps(
        {"preflight_versions": {"containers.podman": {"oldest": "1.16", "first_unsupported": "2"}}}
    )
    run = preflight({"hosts.yml": GOOD}, "-e", variables)
    assert run.status == 2
    words = " ".join(run.output.split())
    assert "containers.podman is 2.0.0; expected 1.16 or newer, and older than 2" in words
    assert "`make setup` installs what fits into .venv" in words
    assert "`ansible-galaxy collection list` say what is used, and from where" in words
    assert "ansible-core is" not in run.output


# This machine stands for hosts that answer, without SSH and without sudo.
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
REFUSING = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_user": "nobody"}


# A Python that says that it is 3.9.
OLD = f"""#!/bin/sh
exec {sys.executable} -c "import sys
from collections import namedtuple
kind = namedtuple('version_info', 'major minor micro releaselevel serial')
sys.version_info, sys.version = kind(3, 9, 2, 'final', 0), '3.9.2 (old)'
exec(sys.stdin.read())"
"""

# A Python of a user who is not root.
OF_SOMEBODY = f"""#!/bin/sh
exec {sys.executable} -c "import os, sys
os.geteuid = lambda: 1000
exec(sys.stdin.read())"
"""


def test_unusable_hosts_are_listed_together_and_no_host_is_changed(
    preflight: Preflight, tmp_path: Path
) -> None:
    (tmp_path / "python3.9").write_text(OLD)
    (tmp_path / "python3.9").chmod(0o755)
    old = {"ansible_python_interpreter": f"{tmp_path}/python3.9", "ansible_become": False}
    (tmp_path / "python").write_text(OF_SOMEBODY)
    (tmp_path / "python").chmod(0o755)
    of_somebody = {"ansible_python_interpreter": f"{tmp_path}/python", "ansible_become": False}
    tree = hosts_file(
        {"node1": REFUSING | {"trainer_address": "a"}},
        {
            "node2": REFUSING | {"trainer_address": "b"},
            "node3": LOCAL | {"ansible_become_exe": "/bin/false"},
            "node4": LOCAL | {"ansible_become": False},
            "node5": LOCAL | old,
            "node6": LOCAL | of_somebody,
        },
    )
    run = preflight({"hosts.yml": tree}, "-e", "ansible_ssh_retries=0", playbook="preflight.yml")
    assert run.status == 2, run.output
    assert "5 of 6 hosts cannot be used. No host was touched." in run.output
    for host in ("node1", "node2"):
        assert re.search(
            rf"^- {host}, user nobody: could not log in: .*Connection refused$", run.output, re.MULTILINE
        )
    assert re.search(r"^- node3, user \w+: logged in, but could not act as root: ", run.output, re.MULTILINE)
    assert "- node4" not in run.output
    too_old = (
        "logged in, but psfleet needs Python 3.10 or newer there, and its Python is 3.9.2: set ansible_python"
    )
    assert re.search(rf"^- node5, user \w+: {too_old}", run.output, re.MULTILINE)
    no_root = "logged in, but could not act as root: the user that becomes root there has the number 1000"
    assert re.search(rf"^- node6, user \w+: {no_root}", run.output, re.MULTILINE)


def test_only_hosts_within_the_limit_are_contacted(preflight: Preflight) -> None:
    tree = hosts_file(
        {"node1": REFUSING | {"trainer_address": "a"}}, {"node2": LOCAL | {"ansible_become": False}}
    )
    files: dict[str, object] = {"hosts.yml": tree}
    run = preflight(files, "--limit", "node2", "--check", playbook="preflight.yml")
    assert run.status == 0, run.output
