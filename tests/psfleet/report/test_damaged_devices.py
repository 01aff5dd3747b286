from pathlib import Path

import pytest
import yaml

from psfleet.report.devices import render
from tests.repository import ROOT

COLLECT = ROOT / "roles" / "training_run" / "tasks" / "collect.yml"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"task":' * 100_000, "[]", '{"variables": 1}', "\0"])
def test_a_damaged_report_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "worker0.json").write_text(text)
    assert f"{tmp_path}/devices/worker0.json cannot be read" in render(tmp_path)


def test_the_run_has_ended_before_its_device_reports_are_read() -> None:
    tasks = yaml.safe_load(COLLECT.read_text())
    order = [str(task.get("ansible.builtin.copy", {}).get("dest", "")) for task in tasks]
    written = [number for number, file in enumerate(order) if file.endswith(("tasks.json", "state.json"))]
    (reported,) = [
        number for number, task in enumerate(tasks) if any(name.endswith("device_report") for name in task)
    ]
    assert len(written) == 2
    assert reported > max(written)
