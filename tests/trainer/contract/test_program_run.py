"""What the launcher of a program and its records share: the cluster, the lead, and `progress.json`."""

import re
import time
from pathlib import Path

import pytest

from trainer.contract.json_files import read_object
from trainer.contract.program_run import cluster_of, lead_task, update_progress


def test_the_cluster_and_its_lead_are_those_of_tf_config() -> None:
    cluster = cluster_of('{"cluster": {"worker": ["a:1", "b:2"], "chief": []}, "task": {}}')
    assert cluster == {"worker": ["a:1", "b:2"], "chief": []}
    assert (lead_task(cluster), lead_task({**cluster, "chief": ["c:3"]})) == ("worker0", "chief0")


@pytest.mark.parametrize("value", ["", "[]", "{}", '{"cluster": 7}', '{"cluster": {"ps": 7}}'])
def test_a_tf_config_without_a_cluster_is_refused(value: str) -> None:
    message = f'TF_CONFIG is {value!r}, expected {{"cluster": {{..}}, "task": {{..}}}}'
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        cluster_of(value)


def test_progress_is_changed_field_by_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1.23456)
    update_progress(tmp_path, {"run_id": "r1", "missing": ["ps0"]})
    update_progress(tmp_path, {"phase": "training", "global_step": 7})
    told = {"run_id": "r1", "phase": "training", "global_step": 7, "missing": ["ps0"], "wall": 1.235}
    fresh: dict[str, object] = {"last_step": 0, "loss": None, "contributions": [], "reason": ""}
    assert read_object(tmp_path / "progress.json") == {**fresh, **told}
    assert {path.name for path in tmp_path.iterdir()} == {"progress.json", ".progress.lock"}
