"""What the hosts of a run will hold of a model with tables, and where the number of rows is set."""

import json
from pathlib import Path

import pytest

from psfleet.run.table_bytes import table_bytes_of_run, table_bytes_of_tasks
from tests.psfleet.inventory.checked import facts, hosts_file, written
from tests.repository import ROOT
from trainer.contract.model_files import read_card
from trainer.contract.plan import ClusterPlan
from trainer.contract.settings import TrainingSettings
from trainer.contract.table_models import ps_bytes

HOSTS = hosts_file({"node1": {"trainer_ps_tasks": 2}, "node2": {}}, {"node3": {}})
SETTINGS = TrainingSettings(model="wide_deep", table_rows=3_000_000)
CARD = read_card(ROOT / "trainer" / "model" / "models" / "wide_deep.py")


def test_each_host_with_ps_has_its_bytes_and_the_line_that_sets_them(tmp_path: Path) -> None:
    given = {"trainer_model": "wide_deep", "trainer_table_rows": 3_000_000}
    inventory = written(tmp_path, {"hosts.yml": HOSTS, "group_vars/tf_cluster.yml": given})
    of_ps = ps_bytes(CARD, SETTINGS.as_dict(), 3)
    remedy = (
        "give it more memory, have more ps, or lower trainer_table_rows "
        f"(edit {tmp_path}/group_vars/tf_cluster.yml:2)"
    )
    rows = "in model wide_deep, which has 3,000,000 rows in 3 parts"
    assert facts(inventory)["cluster_data"]["tables"] == {
        "node1": {"bytes": sum(of_ps[:2]), "what": f"for the part of ps0, ps1 {rows}", "remedy": remedy},
        "node2": {"bytes": of_ps[2], "what": f"for the part of ps2 {rows}", "remedy": remedy},
    }
    # One process has all of it.
    local = facts(inventory, {"trainer_replication": "local"})["cluster_data"]["tables"]
    assert [*local] == ["node3"]
    assert local["node3"]["bytes"] == ps_bytes(CARD, SETTINGS.as_dict(), 1)[0]
    lower = facts(inventory, {"trainer_table_rows": 20_000})["cluster_data"]["tables"]["node2"]["remedy"]
    assert lower.endswith("(given with -e on the command line)")


@pytest.mark.parametrize("given", [{"trainer_model": "linear"}, {"trainer_program": "setup.cfg"}])
def test_the_sizes_of_programs_and_other_models_are_not_guessed(
    given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "setup.cfg").write_text("print()\n", encoding="utf-8")
    inventory = written(tmp_path / "cluster", {"hosts.yml": HOSTS})
    assert facts(inventory, {"trainer_model": "wide_deep", **given})["cluster_data"]["tables"] == {}


def test_a_run_holds_what_it_began_with(tmp_path: Path) -> None:
    inventory = written(tmp_path / "cluster", {"hosts.yml": HOSTS})
    content = facts(inventory)["cluster_plan"]
    training, plan = SETTINGS.as_dict(), ClusterPlan.from_json(content)
    assert table_bytes_of_run(tmp_path / "none") == {}
    for name, its in {"plan": content, "settings": {"training": training, "tasks": {}}}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(its), encoding="utf-8")
    assert table_bytes_of_run(tmp_path) == table_bytes_of_tasks(plan, {"cluster": training})
    assert [*table_bytes_of_run(tmp_path)] == ["ps0", "ps1", "ps2"]
    damaged = {"training": {**training, "table_rows": "many"}, "tasks": {}}
    (tmp_path / "settings.json").write_text(json.dumps(damaged), encoding="utf-8")
    assert table_bytes_of_run(tmp_path) == {}
