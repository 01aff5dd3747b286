"""Bad inventories, given to the real playbooks: refused, with what is wrong and where to mend it."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.plan.conftest import (
    REPOSITORY,
    Preflight,
    cure,
    facts,
    hosts_file,
    placed,
    refused,
    run_playbook,
)

GOOD = hosts_file({"node1": {}}, {"node2": {}, "node3": {}})


def test_an_inventory_that_is_not_there(tmp_path: Path) -> None:
    problems = refused(run_playbook("preflight_inventory.yml", tmp_path / "cluster"))
    assert "cp -r inventory/sample/one_ps_three_workers inventory/cluster" in cure(
        problems, "there is no inventory at", "/cluster"
    )


def test_an_inventory_that_cannot_be_read(preflight: Preflight) -> None:
    run = preflight({"hosts.yml": "tf_cluster: [unclosed"})
    assert cure(refused(run), "the inventory names no host").endswith("inventory/hosts.yml")


def test_a_group_without_hosts(preflight: Preflight) -> None:
    problems = refused(preflight({"hosts.yml": hosts_file({}, None) | {"other": {"hosts": {"node9": None}}}}))
    assert cure(problems, "the group ps is empty", "expected one host or more").endswith("hosts.yml")
    assert cure(problems, "the group worker is empty").endswith("hosts.yml")


def test_no_group_ps_and_a_misspelled_worker(preflight: Preflight) -> None:
    tree = {"tf_cluster": {"hosts": {"node9": None}, "children": {"workers": {"hosts": {"node1": None}}}}}
    problems = refused(preflight({"hosts.yml": tree}))
    assert cure(problems, "there is no group ps", "expected a child group ps of tf_cluster").endswith(
        "hosts.yml"
    )
    cure(problems, "the group workers below tf_cluster", "did you mean worker?")
    cure(problems, "neither ps nor worker holds node9")
    assert len(problems) == 3


def test_no_parent_group(preflight: Preflight) -> None:
    problems = refused(preflight({"hosts.yml": {"tf_clusters": GOOD["tf_cluster"]}}, "--limit", "node2"))
    cure(problems, "there is no group tf_cluster (there is 'tf_clusters')")


def test_groups_outside_of_the_parent(preflight: Preflight) -> None:
    lists = "[ps]\nnode1\n[worker]\nnode2\n[tf_cluster]\nnode1\n"
    problems = refused(preflight({"hosts.ini": lists}))
    cure(problems, "the group worker is not below tf_cluster")
    assert cure(problems, "the group ps is not below tf_cluster").endswith("hosts.ini")


def test_every_bad_variable_is_listed_with_its_file_and_line(preflight: Preflight) -> None:
    own = {"trainer_worker_gpus": [0, 0], "trainer_ps_port": 2300, "trainer_worker_port": 2300}
    tree = hosts_file(
        {"node1": {"ansible_host": "10.0.0.1", "trainer_base_port": 22}},
        {"node2": {"ansible_host": "10.0.0.1", "trainer_address": "fd00::2"}, "node3": {}, "node4": {}},
    )
    problems = refused(
        preflight(
            {
                "hosts.yml": tree,
                "group_vars/tf_cluster.yml": "---\ntrainer_bacth_size: 3\ntrianer_batch_size: 3\n"
                "trainer_cluster_name: My Cluster\ntrainer_seed: '{{ nowhere }}'\ncolour: blue\n",
                "group_vars/worker/training.yml": "trainer_batch_size: many\ntrainer_steps: 7\n",
                "host_vars/node3.yml": own,
                "host_vars/node4/model.yml": {"trainer_model": "resnet", "trainer_ps_gpu": 0},
            },
            "-e",
            "trainer_learning_rate=-1 run_id=night-1",
            "-e",
            "steps=400",
        )
    )
    cluster = "group_vars/tf_cluster.yml"
    closest = "a variable that no role knows; did you mean trainer_batch_size?"
    assert cure(problems, "trainer_bacth_size is", closest).endswith(f"{cluster}:2")
    assert cure(problems, "trianer_batch_size is", closest).endswith(f"{cluster}:3")
    assert cure(problems, "trainer_cluster_name is 'My Cluster'; expected").endswith(f"{cluster}:4")
    assert cure(problems, "trainer_seed cannot be read", "'nowhere' is undefined").endswith(f"{cluster}:5")
    many = cure(problems, "trainer_batch_size is 'many' on node2, node3, node4; expected an integer >= 1")
    assert many.endswith("group_vars/worker/training.yml:1")
    steps = cure(problems, "trainer_steps is 2000 on node1, 7 on node2, node3, node4; expected one value")
    assert re.search(r"set it in \S*group_vars/tf_cluster.yml alone, not in \S*worker/training.yml:2", steps)
    assert cure(problems, "trainer_worker_gpus is [0, 0] on node3; expected").endswith(
        "host_vars/node3.yml:1"
    )
    assert cure(problems, "trainer_model is 'resnet' on", "one of linear").endswith(
        "host_vars/node4/model.yml:1"
    )
    assert cure(problems, "trainer_ps_gpu is", "write trainer_ps_gpus").endswith(
        "host_vars/node4/model.yml:2"
    )
    assert cure(problems, "trainer_base_port is 22 on node1; expected an integer from 1024").endswith(
        "hosts.yml:7"
    )
    assert cure(problems, "trainer_address is 'fd00::2' on node2", '"[fd00::1]"').endswith("hosts.yml:12")
    on_command_line = "given with -e on the command line"
    assert cure(problems, "trainer_learning_rate is '-1'; expected a number > 0") == on_command_line
    assert cure(problems, "steps is", "did you mean trainer_steps?") == on_command_line
    assert len(problems) == 13, problems


def test_the_same_port_and_the_same_address_twice(preflight: Preflight) -> None:
    ports = {"trainer_ps_port": 2300, "trainer_worker_port": 2300}
    tree = hosts_file(
        {"node1": {"ansible_host": "10.0.0.1", **ports}}, {"node1": {}, "node2": {"ansible_host": "10.0.0.1"}}
    )
    problems = refused(preflight({"hosts.yml": tree}))
    assert cure(problems, "ps0 and worker0 on node1 have port 2300").endswith("hosts.yml:8")
    cure(problems, "node1, node2 have one address, 10.0.0.1")


def test_every_wrong_part_of_a_list_of_tasks_is_named_with_the_line_of_the_list(preflight: Preflight) -> None:
    tasks = [{"port": 22}, {"gpus": [0], "bacth_size": 7}, {"gpus": [0]}]
    tree = hosts_file(
        {"node1": {"ansible_host": "10.0.0.1", "trainer_ps_tasks": [{"index": 0}, {"index": 2}]}},
        {"node1": {}, "node2": {}, "node3": {"trainer_worker_tasks": 2}},
    )
    problems = refused(
        preflight(
            {
                "hosts.yml": tree,
                "host_vars/node2.yml": {"trainer_worker_tasks": tasks},
                "host_vars/node3.yml": {
                    "trainer_worker_gpus": [0, 1, 2],
                    "trainer_gpus": [0],
                },
                "host_vars/node1.yml": {"trainer_ps_gpus": [0, 1], "tensorflow_environment_bytes": 7},
            },
            "-e",
            "trainer_replicas_to_aggregate=9",
        )
    )
    of_node2 = "host_vars/node2.yml:1"
    assert cure(problems, "trainer_worker_tasks[0].port is 22 on node2; expected an integer").endswith(
        of_node2
    )
    assert cure(problems, "trainer_worker_tasks[1].bacth_size is 7", "did you mean batch_size?").endswith(
        of_node2
    )
    assert cure(problems, "the indices in trainer_ps_tasks are 0 on node1, 2 on node1").endswith(
        "hosts.yml:7"
    )
    uneven = cure(problems, "trainer_worker_gpus [0, 1, 2] of node3 are 3 GPUs for 2 workers")
    assert uneven.endswith("hosts.yml:15")
    assert cure(problems, "trainer_gpus is", "write trainer_worker_gpus").endswith("host_vars/node3.yml:5")
    assert "host_vars/node1.yml" in cure(problems, "tensorflow_environment_bytes is", "take it out")
    of_ps = cure(
        problems, "trainer_ps_gpus of node1 is [0, 1]; expected none", "trainer_ps_may_use_gpus: true"
    )
    assert of_ps.endswith("host_vars/node1.yml:1")
    only_sync = "trainer_replicas_to_aggregate is 9 with trainer_replication 'async'"
    assert cure(problems, only_sync) == "given with -e on the command line"
    assert len(problems) == 8, problems


def test_a_list_of_tasks_on_the_command_line(preflight: Preflight, show_plan: Path) -> None:
    tree: dict[str, object] = {"hosts.yml": hosts_file({"node1": {}}, {"node1": {}})}
    option = '{"trainer_worker_tasks": [{"gpus": [1]}, {"port": 2300, "gpus": [0]}]}'
    assert placed(facts(preflight(tree, "-e", option, playbook=str(show_plan)))) == {
        "ps0": "node1:2222",
        "worker0": "node1:2223 GPU 1",
        "worker1": "node1:2300 GPU 0",
    }
    problems = refused(preflight(tree, "-e", option.replace("[0]", "[1]")))
    found = cure(problems, "worker0 and worker1 on node1 have GPU 1")
    assert found == "given with -e on the command line"


def test_lines_of_an_ini_inventory_are_found(preflight: Preflight) -> None:
    lists = (
        "[ps]\nnode1\n[worker]\nnode2 trainer_batch_size=0 trainer_base_port=1023\n"
        "[tf_cluster:children]\nps\nworker\n[tf_cluster:vars]\ntrainer_steps=1.5\n"
    )
    problems = refused(preflight({"hosts.ini": lists}))
    assert cure(problems, "trainer_batch_size is 0 on node2").endswith("hosts.ini:4")
    assert cure(problems, "trainer_base_port is 1023 on node2").endswith("hosts.ini:4")
    assert cure(problems, "trainer_steps is 1.5; expected an integer >= 1").endswith("hosts.ini:9")


STRINGS = (
    "trainer_steps=7 trainer_learning_rate=0.5 trainer_optimizer=null trainer_ps_port=2300 "
    "trainer_worker_gpus=0,1"
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
          {{{{ cluster_settings.tasks.worker0.flags }}}}, {{{{ cluster_settings.cluster.steps + 1 }}}},
          {{{{ cluster_paths.log_directory }}}}
"""


@pytest.mark.parametrize(
    ("options", "hosts"),
    [
        ((), ("localhost", "node1", "node2", "node3")),
        (("--limit", "node2"), ("node2",)),
        (("--check",), ("node1",)),
    ],
)
def test_every_host_has_the_whole_plan(
    tmp_path: Path, preflight: Preflight, options: tuple[str, ...], hosts: tuple[str, ...]
) -> None:
    playbook = tmp_path / "show.yml"
    playbook.write_text(SHOW.format(repository=REPOSITORY), encoding="utf-8")
    run = preflight({"hosts.yml": GOOD}, "-e", STRINGS, *options, playbook=str(playbook))
    assert run.status == 0, run.output
    printed = " ".join(run.output.split())  # Ansible folds long lines
    for host in hosts:
        assert (
            f"{host} sees node1 node2 node3, node1:2300, GPUs [0, 1], --model=mnist_mlp --replication=async"
            in printed
        )
    assert "--learning_rate=0.5" in printed
    assert "optimizer" not in printed
    assert ", 8, /var/log/psfleet" in printed
    assert ("node3 sees" in printed) is (options != ("--limit", "node2"))


@pytest.mark.parametrize(("given", "shown"), [("3.14", "'3.14'"), (3.10, "3.1")])
def test_a_python_that_tensorflow_has_no_wheel_for(preflight: Preflight, given: object, shown: str) -> None:
    tree = hosts_file({"node1": {}}, {"node2": {"package_store_python_version": given}})
    cure(
        refused(preflight({"hosts.yml": tree})),
        f"package_store_python_version is {shown} on node2",
        'expected one of "", "3.10", "3.11", "3.12", "3.13"',
    )


@pytest.mark.parametrize(
    "bounds",
    [{"oldest": "2.19", "first_unsupported": "2.19.0"}, {"oldest": "9.0", "first_unsupported": "10"}],
)
def test_an_ansible_that_is_too_new_or_too_old(preflight: Preflight, bounds: dict[str, str]) -> None:
    variables = json.dumps({"preflight_versions": {"ansible-core": bounds}})
    run = preflight({"hosts.yml": GOOD}, "-e", variables)
    assert run.status == 2
    expected = f"expected {bounds['oldest']} or newer, and older than {bounds['first_unsupported']}"
    assert re.search(rf"ansible-core is 2\.\d+\.\d+\S*; {re.escape(expected)}", run.output)


@pytest.mark.parametrize("version", ["2.21.1", "4.0.0"])
def test_a_collection_that_is_too_old_or_too_new(
    preflight: Preflight, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    collection = tmp_path / "collections/ansible_collections/community/crypto"
    collection.mkdir(parents=True)
    manifest = {"collection_info": {"namespace": "community", "name": "crypto", "version": version}}
    (collection / "MANIFEST.json").write_text(json.dumps(manifest))
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(tmp_path / "collections"))
    run = preflight({"hosts.yml": GOOD})
    assert run.status == 2
    words = " ".join(run.output.split())
    assert f"community.crypto is {version}; expected 2.22 or newer, and older than 4" in words
    assert str(collection) in run.output
    assert "`make setup` installs what fits into .venv" in words
    assert "ansible-core is" not in run.output


# This machine stands for hosts that answer, without SSH and without sudo.
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
REFUSING = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_user": "nobody"}


def test_hosts_that_cannot_be_used_are_listed_together_and_the_others_left_alone(
    preflight: Preflight,
) -> None:
    tree = hosts_file(
        {"node1": REFUSING | {"trainer_address": "a"}},
        {
            "node2": REFUSING,
            "node3": LOCAL | {"ansible_become_exe": "/bin/false"},
            "node4": LOCAL | {"ansible_become": False},
        },
    )
    run = preflight({"hosts.yml": tree}, "-e", "ansible_ssh_retries=0", playbook="preflight.yml")
    assert run.status == 2, run.output
    assert "3 of 4 hosts cannot be used. The others were not touched." in run.output
    for host in ("node1", "node2"):
        assert re.search(
            rf"^- {host}, user nobody: could not log in: .*Connection refused$", run.output, re.MULTILINE
        )
    assert re.search(r"^- node3, user \w+: logged in, but could not act as root: ", run.output, re.MULTILINE)
    assert "- node4" not in run.output


def test_only_the_hosts_of_the_limit_are_asked(preflight: Preflight) -> None:
    tree = hosts_file({"node1": REFUSING}, {"node2": LOCAL | {"ansible_become": False}})
    files: dict[str, object] = {"hosts.yml": tree}
    run = preflight(files, "--limit", "node2", "--check", playbook="preflight.yml")
    assert run.status == 0, run.output
