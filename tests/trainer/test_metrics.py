import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.repository import ROOT
from tests.trainer.step_record import STEP
from trainer import metrics
from trainer.metrics import Family, render

PROGRESS = {
    "phase": "training",
    "wall": 1e9,
    "global_step": 60,
    "last_step": 200,
    "loss": 0.25,
    "missing": [],
}


class Host:
    """A host with ps0 and worker0; `units` has the states of their units."""

    def __init__(self, folder: Path) -> None:
        """Deploy it below a folder."""
        self.configuration, self.state = folder / "etc", folder / "state"
        self.units = {"psfleet-ps@0.service": "active", "psfleet-worker@0.service": "active"}
        for part in ("tasks", "run"):
            (self.configuration / part).mkdir(parents=True)
        for name in ("ps-0", "worker-0"):
            (self.configuration / "tasks" / f"{name}.env").write_text("")
        (self.configuration / "plan.json").write_text('{"cluster_name": "psfleet"}')

    def prepare(self, run_id: str, *names: str) -> None:
        """Give tasks (such as "worker-0") a run, as train.yml does."""
        for name in names:
            (self.configuration / "run" / f"{name}.env").write_text(f'PSFLEET_RUN_ID="{run_id}"\n')
        (self.state / "runs" / run_id / "events").mkdir(parents=True, exist_ok=True)

    def write(self, run_id: str, wall: float = 1e9, **records: Any) -> None:  # noqa: ANN401
        """Let worker 0 record a step, and the lead tell at that time how far the run is."""
        run = self.state / "runs" / run_id
        (run / "events" / "worker0.jsonl").write_text(json.dumps(STEP | records) + "\n")
        (run / "progress.json").write_text(json.dumps(PROGRESS | {"wall": wall}))

    def show(self, units: Sequence[str]) -> list[dict[str, str]]:
        """Answer as systemctl does."""
        return [{"ActiveState": self.units.get(unit, "inactive"), "NRestarts": "2"} for unit in units]

    def metrics(self) -> dict[tuple[str, ...], float]:
        """Return each sample as Prometheus reads it: name and labels but the cluster's, to value."""
        tasks = metrics.host_tasks(self.configuration, self.state, self.show)
        text = render(metrics.families("psfleet", tasks))
        found: dict[tuple[str, ...], float] = {}
        for family in text_string_to_metric_families(text):
            assert family.documentation
            assert (family.type == "counter") == any(s.name.endswith("_total") for s in family.samples)
            for sample in family.samples:
                labels = dict(sample.labels)
                assert labels.pop("cluster") == "psfleet"
                key = (sample.name, *labels.values())
                assert key not in found
                found[key] = sample.value
        return found


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_running_run_has_metrics_of_its_tasks_and_of_the_run(host: Host) -> None:
    host.prepare("night-1", "ps-0", "worker-0", "evaluation-0")
    host.write("night-1")
    found = host.metrics()
    worker = ("worker0", "worker")
    assert {key: found[key] for key in found if key[1:] == worker} == {
        ("psfleet_task_up", *worker): 1,
        ("psfleet_task_failed", *worker): 0,
        ("psfleet_task_restarts_total", *worker): 2,
        ("psfleet_task_local_steps_total", *worker): 30,
        ("psfleet_task_global_step", *worker): 60,
        ("psfleet_task_loss", *worker): 0.5,
        ("psfleet_task_steps_per_second", *worker): 5,
        ("psfleet_task_examples_per_second", *worker): 500,
        ("psfleet_task_last_step_timestamp_seconds", *worker): 1e9,
    }
    assert found["psfleet_task_up", "ps0", "ps"] == 1
    assert ("psfleet_task_global_step", "ps0", "ps") not in found
    assert found[("psfleet_task_run_info", *worker, "night-1")] == 1
    assert {key[1]: found[key] for key in found if key[0] == "psfleet_run_phase"} == {
        **dict.fromkeys(metrics.PHASES, 0),
        "training": 1,
    }
    of_run = ("global_step", "last_step", "loss", "missing_tasks", "progress_timestamp_seconds")
    assert [found[(f"psfleet_run_{name}",)] for name in of_run] == [60, 200, 0.25, 0, 1e9]
    assert not [key for key in found if "evaluat" in " ".join(key)]


def test_after_a_run_its_tasks_are_down_and_its_last_values_remain(host: Host) -> None:
    host.prepare("night-1", "ps-0", "worker-0")
    host.write("night-1")
    host.units = {"psfleet-ps@0.service": "failed"}
    found = host.metrics()
    assert (found["psfleet_task_up", "ps0", "ps"], found["psfleet_task_failed", "ps0", "ps"]) == (0, 1)
    assert found["psfleet_task_up", "worker0", "worker"] == 0
    assert found["psfleet_task_global_step", "worker0", "worker"] == 60


def test_the_next_run_does_not_begin_with_the_values_of_the_last(host: Host) -> None:
    host.prepare("night-1", "worker-0")
    host.write("night-1")
    host.prepare("night-2", "worker-0")
    found = host.metrics()
    assert found["psfleet_task_run_info", "worker0", "worker", "night-2"] == 1
    assert not [
        key for key in found if "step" in key[0] or "loss" in key[0] or key[0].startswith("psfleet_run")
    ]


def test_a_run_without_chief0_is_not_confused_with_an_earlier_run_of_a_program(host: Host) -> None:
    host.prepare("program-1", "chief-0", "worker-0")
    host.write("program-1")
    host.prepare("night-2", "worker-0")
    host.write("night-2", wall=2e9)
    found = host.metrics()
    assert found["psfleet_run_info", "night-2", "worker0"] == 1
    assert found[("psfleet_run_progress_timestamp_seconds",)] == 2e9


def test_before_any_run_only_the_states_of_tasks_are_exported(host: Host) -> None:
    assert {key[0] for key in host.metrics()} == {
        "psfleet_task_up",
        "psfleet_task_failed",
        "psfleet_task_restarts_total",
    }


def test_a_non_finite_loss_is_exported_as_nan(host: Host) -> None:
    host.prepare("night-1", "worker-0")
    host.write("night-1", loss=None)
    assert math.isnan(host.metrics()["psfleet_task_loss", "worker0", "worker"])


def test_no_metrics_are_written_if_systemd_does_not_answer(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(host.configuration))
    program = host.configuration / "systemctl"
    program.write_text("#!/bin/sh\necho no bus >&2\nexit 1\n")
    program.chmod(0o755)
    output = host.state / "psfleet.prom"
    directories = (f"--configuration_directory={host.configuration}", f"--state_directory={host.state}")
    assert metrics.main([*directories, f"--output_file={output}"]) == 1
    assert capsys.readouterr().err == (
        "the metrics were not written: systemctl show was asked for 2 units and answered: no bus\n"
    )
    assert not output.exists()


def test_the_value_of_a_label_is_escaped() -> None:
    value = 'a "quoted" \\ and\nbroken'
    text = render([Family("x", "help", [({"cluster": value}, -math.inf)])])
    (family,) = text_string_to_metric_families(text)
    assert [(sample.labels, sample.value) for sample in family.samples] == [({"cluster": value}, -math.inf)]


def test_the_module_needs_no_package() -> None:
    # -S: without the environment's packages, as the unit starts it.
    command = [sys.executable, "-S", "-c", "import trainer.metrics"]
    subprocess.run(command, cwd=ROOT, check=True)
