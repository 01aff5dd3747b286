"""prove.yml replaces the inventory's training settings, and refuses what cannot be proven."""

from pathlib import Path

import yaml

from psfleet.evidence.settings import EvidenceSettings
from tests.psfleet.inventory.checked import facts, hosts_file, written
from tests.psfleet.inventory.conftest import Preflight
from tests.repository import ROOT

PLAYBOOK = ROOT / "playbooks" / "prove.yml"


def test_the_proof_replaces_the_training_of_the_inventory(tmp_path: Path) -> None:
    own = {
        "trainer_program": __file__,
        "trainer_existing_servers": True,
        "trainer_replication": "in_graph",
        "trainer_data_dir": "/srv/mnist",
    }
    two = {"trainer_worker_tasks": [{"batch_size": 7}, {}]}
    tree = hosts_file({"node1": {}}, {"node2": two}, vars=own)
    tree["tf_cluster"]["children"]["chief"] = {"hosts": {"node1": None}}  # type: ignore[index]
    inventory = written(tmp_path, {"hosts.yml": tree})
    deployed, proof = facts(inventory), facts(inventory, proof="sync")
    assert proof["cluster_plan"] == deployed["cluster_plan"], "what is deployed is what is proven"
    assert proof["cluster_settings"]["program"] is None
    tasks = proof["cluster_settings"]["tasks"]
    assert list(tasks) == ["ps0", "worker0", "worker1"], "neither servers nor a program's coordinator"
    assert [tasks[f"worker{index}"]["batch_size"] for index in (0, 1)] == [7, 100]
    for name, value in {"model": "partition", "replication": "sync", "steps": 200, "data_dir": ""}.items():
        assert tasks["worker1"][name] == value


def test_goals_and_tolerances_of_the_inventory_do_not_apply_to_a_proof() -> None:
    """A tolerance for another model must not let a wrong weight pass."""
    plays = yaml.safe_load(PLAYBOOK.read_text(encoding="utf-8"))
    runs = [play["vars"] for play in plays if play.get("ansible.builtin.import_playbook") == "train.yml"]
    own = EvidenceSettings()
    for name in ("target_loss", "loss_patience", "goals"):
        assert [run[f"training_evidence_{name}"] for run in runs] == [getattr(own, name)] * 2


def test_a_cluster_with_one_worker_is_refused(preflight: Preflight) -> None:
    files: dict[str, object] = {"hosts.yml": hosts_file({"node1": {}}, {"node2": {}})}
    run = preflight(files, "-e", "trainer_model=linear", playbook="prove.yml")
    assert run.status == 2, run.output
    assert (
        "The inventory has 2 problems. Nothing was touched.\n1. the inventory has one worker, on node2"
        in run.output
    )
    assert (
        "2. trainer_model is given with -e, and prove.yml chooses it; expected no value\n   leave -e"
        in run.output
    )
