"""The files that a program, its launcher and their readers share: JSON, the cluster, `progress.json`."""

import math
import re
import time
from pathlib import Path

import pytest

from trainer.contract.json_files import read_object, write_json
from trainer.contract.program_progress import cluster_of, lead_task, update_progress


def test_a_json_file_is_replaced_atomically_and_non_finite_numbers_become_null(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    file.write_text("as it was")
    file.with_name("beside").hardlink_to(file)
    write_json(file, {"loss": math.inf, 1: [0.5, (math.nan, {"é": "x"})]})
    assert file.read_text() == '{"loss": null, "1": [0.5, [null, {"\\u00e9": "x"}]]}\n'
    assert file.with_name("beside").read_text() == "as it was"
    assert read_object(file) == {"loss": None, "1": [0.5, [None, {"é": "x"}]]}
    write_json(file, {"a": 1}, indent=2)
    assert file.read_text() == '{\n  "a": 1\n}\n'
    assert {path.name for path in tmp_path.iterdir()} == {"figures.json", "beside"}


@pytest.mark.parametrize("text", [None, "", "[1]", '{"a": 1', "[" * 100_000])
def test_a_missing_cut_or_invalid_object_reads_as_empty(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "x.json").write_text(text)
    assert read_object(tmp_path / "x.json") == {}


def test_the_cluster_and_its_lead_are_read_from_tf_config() -> None:
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
