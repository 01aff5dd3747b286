"""prove.yml and the inventory: what this trains gives way, and what cannot be proven is refused."""

from pathlib import Path

import yaml

from tests.plan.conftest import Preflight, cure, facts, hosts_file, refused
from trainer.evidence.settings import EvidenceSettings

PLAYBOOK = Path(__file__).resolve().parents[2] / "playbooks" / "prove.yml"


def test_the_proof_takes_the_place_of_whatever_the_inventory_trains(
    preflight: Preflight, show_plan: Path
) -> None:
    own = {
        "trainer_program": str(show_plan),
        "trainer_existing_servers": True,
        "trainer_replication": "in_graph",
        "trainer_data_dir": "/srv/mnist",
    }
    two = {"trainer_worker_tasks": [{"batch_size": 7}, {}]}
    tree = hosts_file({"node1": {}}, {"node2": two}, vars=own)
    tree["tf_cluster"]["children"]["chief"] = {"hosts": {"node1": None}}  # type: ignore[index]
    files: dict[str, object] = {"hosts.yml": tree}
    deployed = facts(preflight(files, playbook=str(show_plan)))
    proof = facts(preflight(files, "-e", "validate_inventory_proof=sync", playbook=str(show_plan)))
    assert proof["plan"] == deployed["plan"], "what is deployed is what is proven"
    assert proof["program"] == {}
    assert proof["settings"]["program"] is None
    tasks = proof["settings"]["tasks"]
    assert list(tasks) == ["ps0", "worker0", "worker1"], "neither servers nor a program's coordinator"
    assert [tasks[f"worker{index}"]["values"]["batch_size"] for index in (0, 1)] == [7, 100]
    for name, value in {"model": "partition", "replication": "sync", "steps": 200, "data_dir": ""}.items():
        assert tasks["worker1"]["values"][name] == value


def test_what_the_inventory_asks_of_its_own_training_is_not_asked_of_a_proof() -> None:
    """Nor does a tolerance for another model let a weight pass that nobody told."""
    plays = yaml.safe_load(PLAYBOOK.read_text(encoding="utf-8"))
    runs = [play["vars"] for play in plays if play.get("ansible.builtin.import_playbook") == "train.yml"]
    own = EvidenceSettings()
    for name in ("target_loss", "loss_patience", "error_tolerance", "goals"):
        assert [run[f"training_evidence_{name}"] for run in runs] == [getattr(own, name)] * 2


def test_a_cluster_of_one_worker_has_nobody_to_share_with(preflight: Preflight) -> None:
    files: dict[str, object] = {"hosts.yml": hosts_file({"node1": {}}, {"node2": {}})}
    problems = refused(preflight(files, "-e", "trainer_model=linear", playbook="prove.yml"))
    assert cure(problems, "the inventory has one worker, on node2", "two workers or more").endswith(
        "hosts.yml"
    )
    assert cure(problems, "trainer_model is given with -e") == "leave -e trainer_model=... out"
