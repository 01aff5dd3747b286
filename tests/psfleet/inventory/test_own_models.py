"""A model's file of the user's: its card is checked before any host is reached, and it is never run."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.psfleet.inventory.checked import checked, facts, hosts_file, written
from tests.repository import ROOT
from trainer.contract.model_files import read_card

HOSTS = hosts_file({"node1": {}}, {"node2": {}, "node3": {}})
# It has tables of fixed sizes.
RATINGS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/tables.md").read_text("utf-8"), re.DOTALL)[0]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's file in the home of the user, which is also the working directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "models" / "mine.py"
    path.parent.mkdir()
    path.write_text(f"raise SystemExit\n{RATINGS}", encoding="utf-8")
    return path


def _given(tmp_path: Path, **variables: object) -> tuple[dict[str, Any], str]:
    of_cluster = {"trainer_model": "~/models/mine.py", **variables}
    return checked(
        written(tmp_path / "cluster", {"hosts.yml": HOSTS, "group_vars/tf_cluster.yml": of_cluster})
    )


def test_the_file_is_carried_like_a_program_and_the_run_has_its_card(mine: Path, tmp_path: Path) -> None:
    inventory = written(tmp_path / "cluster", {"hosts.yml": HOSTS})
    shown = facts(inventory, {"trainer_model": "~/models/mine.py"})
    (model,) = shown["cluster_data"]["models"]
    assert model == {"name": "mine", "source": str(mine), "release": model["release"]}
    on_hosts = f"/opt/psfleet/programs/{model['release']}/mine.py"
    settings = shown["cluster_settings"]
    assert settings["cluster"]["model"] == on_hosts
    assert on_hosts in json.dumps(settings["tasks"]["worker1"])
    assert settings["card"] == read_card(mine).to_json()
    for path in ("models/mine.py", str(mine)):
        assert facts(inventory, {"trainer_model": path}) == shown
    mine.write_text(f"{RATINGS}\n", encoding="utf-8")
    assert (
        facts(inventory, {"trainer_model": str(mine)})["cluster_data"]["models"][0]["release"]
        != model["release"]
    )


def test_a_built_in_model_carries_nothing(tmp_path: Path) -> None:
    shown = facts(written(tmp_path / "cluster", {"hosts.yml": HOSTS}), {"trainer_model": "linear"})
    assert (shown["cluster_data"]["models"], shown["cluster_settings"]["card"]) == ([], None)


def test_a_proof_leaves_the_model_alone_and_what_is_deployed_is_the_same(mine: Path, tmp_path: Path) -> None:
    inventory = written(tmp_path / "cluster", {"hosts.yml": HOSTS})
    deployed = facts(inventory, {"trainer_model": str(mine)})
    proof = facts(written(tmp_path / "other", _with_model(mine)), proof="sync")
    assert proof["cluster_data"]["models"] == deployed["cluster_data"]["models"]
    assert proof["cluster_settings"]["cluster"]["model"] == "partition"
    assert proof["cluster_settings"]["card"] is None


def _with_model(mine: Path) -> dict[str, object]:
    return {"hosts.yml": HOSTS, "group_vars/tf_cluster.yml": {"trainer_model": str(mine)}}


@pytest.mark.usefixtures("mine")
def test_what_the_ps_will_hold_of_its_tables_is_known(tmp_path: Path) -> None:
    shown, _ = _given(tmp_path, trainer_ps_tasks=2)
    held = shown["cluster_data"]["tables"]["node1"]
    assert held["bytes"] == pytest.approx(1.15 * 2_500 * 8 * 4 * 2, abs=2), "adagrad has one slot"
    assert held["what"] == "for the part of ps0, ps1 in model mine, which has 2,000 rows in 2 parts"
    assert held["remedy"] == "give it more memory, or have more ps"


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        (
            {"trainer_stop_when": "accuracy > 0.9", "trainer_evaluate_every_steps": 10},
            "trainer_stop_when is 'accuracy > 0.9', and trainer_model {mine!r} has no such metric; expected "
            "one of squared_error",
        ),
        (
            {"trainer_push_every": 4},
            "trainer_push_every is 4, and trainer_model {mine!r} has tables, whose rows are looked up for "
            "each batch; expected 1",
        ),
    ],
)
def test_settings_that_do_not_fit_its_card_are_refused(
    mine: Path, tmp_path: Path, variables: dict[str, object], says: str
) -> None:
    refusal = _given(tmp_path, **variables)[1]
    assert says.format(mine=str(mine)) in refusal, refusal


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (
            '"squared_error": {"maximum": 0.5}',
            '"squared_error": {"maximun": 0.5}',
            "trainer_model: {mine}:{line}: CARD: goals.squared_error.maximun is 0.5; expected a key of a "
            "goal (did you mean maximum?)\n"
            "   edit {mine}",
        ),
        (
            '"learning_rates"',
            '"settings": ["units"], "learning_rates"',
            "trainer_model: {mine}: CARD: settings has 'units'; expected names of training settings, as in "
            "docs/contracts.md\n   edit {mine}",
        ),
        (
            "CARD",
            "KARTE",
            "trainer_model: {mine} has no card; expected one CARD = {{...}}, as docs/models.md "
            "shows\n   edit",
        ),
        (
            "def load(",
            "def load(:",
            "trainer_model: {mine}:{line}: invalid syntax; expected Python\n   edit {mine}",
        ),
    ],
)
def test_a_mistake_in_its_card_is_named_with_file_and_line(
    mine: Path, tmp_path: Path, before: str, after: str, says: str
) -> None:
    content = mine.read_text("utf-8")
    assert before in content
    mine.write_text(content.replace(before, after), encoding="utf-8")
    line = content.partition(before)[0].count("\n") + 1
    refusal = _given(tmp_path)[1]
    assert refusal.startswith("The inventory has a problem. Nothing was touched.\n"), refusal
    assert says.format(mine=mine, line=line) in refusal, refusal


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("models/none.py", "and there is no such file on this machine; expected the file of a model"),
        ("models", "expected one of cnn, "),
        ("models/my model.py", "expected a file with a name of letters, digits and '_', such as my_model.py"),
    ],
)
def test_a_path_of_no_model_is_refused(mine: Path, tmp_path: Path, path: str, says: str) -> None:
    mine.with_name("my model.py").write_text(RATINGS, encoding="utf-8")
    refusal = _given(tmp_path, trainer_model=path)[1]
    assert says in refusal
    assert "\n   edit cluster/group_vars/tf_cluster.yml:1" in refusal.replace(f"{tmp_path}/", "")
