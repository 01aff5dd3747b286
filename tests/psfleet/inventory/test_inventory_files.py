"""Files of variables that Ansible reads for no host and no group are named."""

from pathlib import Path

import pytest

from psfleet.inventory.ansible_inventory import role_variables
from psfleet.inventory.inventory_files import unused_files
from tests.psfleet.inventory.checked import hosts_file, written
from tests.psfleet.inventory.conftest import Preflight

GROUPS = {"all": ["Beta-GPU", "node.1"], "worker": ["Beta-GPU", "node.1"], "tf_cluster": ["node.1"]}


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("host_vars/node.2.yml", "the inventory has no host node.2"),
        ("host_vars/beta-gpu.yaml", "the inventory has no host beta-gpu, but Beta-GPU, in other capitals"),
        ("host_vars/Beta-GPU.txt", "Ansible reads files with the ending .yml, not .txt"),
        ("host_vars/node/own.yml", "the inventory has no host node"),
        ("group_vars/workers.yml", "the inventory has no group workers"),
        ("host_vars/node.1", ""),
        ("host_vars/node.1.yml", ""),
        ("host_vars/Beta-GPU/any.yml", ""),
        ("group_vars/tf_cluster.yaml", ""),
        ("group_vars/all/x.yml", ""),
        ("host_vars/.node.2.yml.swp", ""),
        ("host_vars/node.2.yml~", ""),
    ],
)
def test_a_file_that_sets_variables_for_nobody_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "cluster", {"hosts.yml": "", file: "mine: 1\ntrainer_batch_size: 7\n"})
    expected = [f"cluster/{file} sets trainer_batch_size for nobody: {why}"] if why else []
    for source in ("cluster", "cluster/hosts.yml"):
        assert [*unused_files([source], GROUPS, role_variables())] == expected
    # Variables of other projects are not psfleet's business.
    (tmp_path / "cluster" / file).write_text("mine: 1\n")
    assert not [*unused_files(["cluster", "a,b"], GROUPS, role_variables())]


def test_a_playbook_warns_of_a_file_for_nobody_and_goes_on(preflight: Preflight) -> None:
    files = {
        "hosts.yml": hosts_file({"node1": {}}, {"node2": {}}),
        "host_vars/nod2.yml": {"trainer_batch_size": 7},
    }
    run = preflight(files)
    said = " ".join(run.output.split())
    assert run.status == 0, said
    assert "host_vars/nod2.yml sets trainer_batch_size for nobody: the inventory has no host nod2" in said


def test_a_playbook_names_the_line_with_a_tab_in_a_file_of_variables(preflight: Preflight) -> None:
    files = {
        "hosts.yml": hosts_file({"node1": {}}, {"node2": {}}),
        "group_vars/tf_cluster.yml": "trainer_steps: 7\ntrainer_program_environment:\n\tA: x\n",
    }
    run = preflight(files)
    assert run.status == 2
    assert "group_vars/tf_cluster.yml is no YAML: found character a tab" in run.output
    assert "group_vars/tf_cluster.yml:3" in run.output
