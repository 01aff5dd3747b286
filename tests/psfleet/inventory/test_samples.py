"""The shapes of inventory/sample, read by Ansible and checked."""

import re
from pathlib import Path

import pytest

from tests.psfleet.inventory.checked import checked, facts, placed, written
from tests.repository import ROOT

SAMPLES = ROOT / "inventory" / "sample"
PLACED = {
    "one_machine": {"ps0": "node1:2222", "worker0": "node1:2223", "worker1": "node1:2224"},
    "two_machines": {"ps0": "node1:2222", "worker0": "node1:2223", "worker1": "node2:2222"},
    "one_ps_three_workers": {
        "ps0": "node1:2222",
        "worker0": "node2:2222",
        "worker1": "node3:2222",
        "worker2": "node4:2222",
    },
    "four_machines_four_gpus": {
        "ps0": "node1:2222",
        "ps1": "node2:2222",
        **{
            f"worker{4 * machine + gpu}": f"node{machine + 1}:{first_port + gpu} GPU {gpu}"
            for machine, first_port in enumerate([2223, 2223, 2222, 2222])
            for gpu in range(4)
        },
    },
}


def test_every_sample_is_tested_and_listed_in_the_readme() -> None:
    text = (SAMPLES / "README.md").read_text(encoding="utf-8")
    shapes = sorted(folder.name for folder in SAMPLES.iterdir() if folder.is_dir())
    assert shapes == sorted(PLACED) == sorted(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE))


@pytest.mark.parametrize("shape", PLACED)
def test_a_sample_gives_the_expected_tasks(shape: str) -> None:
    shown = facts(SAMPLES / shape)
    assert placed(shown) == PLACED[shape]
    # Addresses reserved for documentation: an unedited sample reaches no machine.
    assert {task["address"].rsplit(".", 1)[0] for task in shown["cluster_plan"]["tasks"]} == {"192.0.2"}
    batch_size = 256 if shape == "four_machines_four_gpus" else 100
    assert shown["cluster_settings"]["tasks"]["worker0"]["batch_size"] == batch_size


@pytest.mark.parametrize("shape", PLACED)
def test_a_sample_is_valid_with_every_commented_line_enabled(shape: str, tmp_path: Path) -> None:
    files: dict[str, object] = {
        name: re.sub(r"# (trainer_)", r"\1", (SAMPLES / shape / name).read_text(encoding="utf-8"))
        for name in ("hosts.yml", "group_vars/tf_cluster.yml")
    }
    assert "\ntrainer_steps: 2000" in str(files["group_vars/tf_cluster.yml"])
    assert checked(written(tmp_path, files))[1] == ""
