"""A lost ps restores its part alone where it may; where it may not, the whole model goes back."""

import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.psfleet.evidence.adversaries.pace import Pace, stands_still
from tests.repository import ROOT
from tests.trainer.processes import PAUSING, PROGRAM, Cluster
from trainer.contract.exit_codes import STOPPED, USAGE

# The rows of a ps change in every step.
TABLES = (
    "--model=wide_deep",
    "--table_rows=20000",
    "--batch_size=64",
    "--steps_per_call=1",
    "--steps=1000000",
)
PARTIAL = (*TABLES, "--ps_recovery=partial")
WORKERS = ("worker0", "worker1")


def test_a_lost_ps_restores_alone_but_with_ps0_or_the_chief_all_do(tmp_path: Path) -> None:
    with Cluster(tmp_path, ps=2, flags=PARTIAL, program=PAUSING) as cluster:
        cluster.start()
        cluster.until_steps(50)
        _lose_and_start(cluster, "ps1")
        restored = cluster.only("worker0", "ps_restored")
        assert restored.text("task") == "ps1"
        assert not cluster.records("worker0", "restored")
        _assert_that_the_part_is_what_was_saved(cluster)
        _assert_that_no_step_was_lost(cluster)
        nonces = [cluster.records("worker1", "peers_ready")[n].integers("ps_nonces") for n in (0, 1)]
        assert nonces[0]["ps0"] == nonces[1]["ps0"]
        assert nonces[0]["ps1"] != nonces[1]["ps1"]

        # It has the counters.
        _lose_and_start(cluster, "ps0")
        assert len(cluster.records("worker0", "restored")) == 1
        # The new chief does not know what the ps had held.
        _lose_and_start(cluster, "ps1", "worker0")
        assert len(cluster.records("worker0", "restored")) == 2
        cluster.only("worker0", "ps_restored")

        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == {**dict.fromkeys(cluster.tasks, 0), "worker0": STOPPED}, cluster.outputs()
        stopped = cluster.records("worker0", "finished")[-1]
        assert sum(stopped.integers("contributions").values()) == stopped.integer("global_step")


@pytest.mark.chaos
def test_a_checkpoint_counts_although_a_ps_is_lost_once_it_has_written_its_part(tmp_path: Path) -> None:
    with Cluster(tmp_path, ps=2, flags=PARTIAL, program=PAUSING) as cluster:
        cluster.start("ps0", "ps1", "worker1")
        cluster.start("worker0", program=[str(ROOT / "tests" / "trainer" / "losing_program.py")])
        cluster.until(lambda: cluster.has_ended("ps1"), "the loss of ps 1")
        cluster.start("ps1")
        cluster.until(lambda: len(cluster.records("worker0", "peers_ready")) == 2, "the chief to go on")
        assert not cluster.records("worker0", "checkpoint_failed")
        first, second = [each.integer("global_step") for each in cluster.records("worker0", "checkpointed")][
            :2
        ]
        assert first == 0 < second
        # If no step was taken since, all go back to it.
        found = [
            *(each.integer("checkpoint_step") for each in cluster.records("worker0", "ps_restored")),
            *(each.integer("global_step") for each in cluster.records("worker0", "restored")),
        ]
        assert found == [second]


@pytest.mark.chaos
def test_all_go_back_if_that_loses_no_step(tmp_path: Path) -> None:
    """Both workers stand still before their first steps, so the first checkpoint is of the present one."""
    with Cluster(tmp_path, ps=2, flags=PARTIAL, program=Pace(stops_itself_at=1).program) as cluster:
        cluster.start("ps0", "ps1", program=PROGRAM)
        cluster.start(*WORKERS)
        for worker in WORKERS:
            cluster.until(lambda of=worker: bool(cluster.records(of, "peers_ready")), worker)  # type: ignore[misc]
            pid = cluster.only(worker, "started").pid
            cluster.until(lambda of=pid: stands_still(of), worker)  # type: ignore[misc]
        cluster.signal("ps1", signal.SIGKILL)
        cluster.start("ps1", program=PROGRAM)
        for worker in WORKERS:
            cluster.signal(worker, signal.SIGCONT)
        cluster.until_steps(10)
        assert cluster.only("worker0", "restored").integer("global_step") == 0
        assert not cluster.records("worker0", "ps_restored")


@pytest.mark.chaos
def test_without_the_setting_all_restore(tmp_path: Path) -> None:
    with Cluster(tmp_path, ps=2, flags=TABLES, program=PAUSING) as cluster:
        cluster.start()
        cluster.until_steps(50)
        _lose_and_start(cluster, "ps1")
        restored = cluster.only("worker0", "restored")
        saved = cluster.records("worker0", "checkpointed")
        assert restored.text("fingerprint") in {each.text("fingerprint") for each in saved}
        assert not cluster.records("worker0", "ps_restored")
        assert not any("ps_fingerprints" in each.fields for each in saved)


def test_what_cannot_restore_alone_is_refused(tmp_path: Path) -> None:
    with Cluster(tmp_path, ps=2, flags=[*PARTIAL, "--replication=sync"]) as cluster:
        cluster.start("worker0")
        assert cluster.wait() == {"worker0": USAGE}
        assert "--ps_recovery is 'partial' with --replication 'sync'" in cluster.output("worker0")


def _lose_and_start(cluster: Cluster, *tasks: str) -> None:
    """Kill tasks and start them; return once both workers take steps again."""
    before = {worker: len(cluster.records(worker, "peers_ready")) for worker in WORKERS}
    for task in tasks:
        cluster.signal(task, signal.SIGKILL)
    cluster.start(*tasks)
    for worker in WORKERS:
        met = before[worker]
        cluster.until(lambda of=worker, n=met: len(cluster.records(of, "peers_ready")) > n, worker)  # type: ignore[misc]
    cluster.until_steps(50)


def _ps_fingerprints(cluster: Cluster) -> dict[int, Mapping[str, str]]:
    """Global step -> the fingerprint of what each ps held of the checkpoint."""
    return {
        record.integer("global_step"): record.fields["ps_fingerprints"]  # type: ignore[misc]
        for record in cluster.records("worker0", "checkpointed")
    }


def _assert_that_the_part_is_what_was_saved(cluster: Cluster) -> None:
    restored = cluster.only("worker0", "ps_restored")
    now, then = restored.integer("global_step"), restored.integer("checkpoint_step")
    assert then < now
    cluster.until(lambda: now in _ps_fingerprints(cluster), "the checkpoint that follows")
    saved = _ps_fingerprints(cluster)
    assert restored.text("fingerprint") == saved[then]["ps1"]
    # The checkpoint that follows at once: ps 1 itself hashed its rows for it, and ps 0 had kept its own.
    assert saved[now]["ps1"] == saved[then]["ps1"]
    assert saved[now]["ps0"] != saved[then]["ps0"]


def _assert_that_no_step_was_lost(cluster: Cluster) -> None:
    """Assert that for each worker the global step never fell."""
    assert cluster.progress()["steps_lost"] == 0
    for worker in WORKERS:
        windows = cluster.records(worker, "step")
        steps = [
            each.integer(name) for each in windows for name in ("global_step_before", "global_step_after")
        ]
        assert steps == sorted(steps)
