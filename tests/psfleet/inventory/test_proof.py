"""The runs of the proof by partition: their settings, their obstacles, and their summary."""

from collections.abc import Mapping
from typing import Any

import pytest

from psfleet.inventory.problems import InventoryError
from psfleet.inventory.proof import proof_settings, require_provable
from psfleet.report.proof_summary import ProofRun, summary
from trainer.contract.plan import ClusterPlan, Job, PlannedTask
from trainer.contract.settings import TrainingSettings


def plan(ps: int, workers: int) -> ClusterPlan:
    jobs: list[tuple[Job, int]] = [("ps", ps), ("worker", workers)]
    tasks = [
        PlannedTask(job, index, f"n{index}", "10.0.0.1", 2222)
        for job, count in jobs
        for index in range(count)
    ]
    return ClusterPlan("psfleet", tuple(tasks))


def test_a_proof_keeps_settings_of_the_cluster_and_replaces_those_of_the_training() -> None:
    own = TrainingSettings(
        model="cnn",
        replication="sync",
        replicas_to_aggregate=2,
        existing_servers=True,
        epochs=9,
        pull_ahead=True,
        push_every=4,
        pull_every=8,
        staleness="damped",
        wire_dtype="bfloat16",
        batch_size=17,
        learning_rate=3.0,
        optimizer="adam",
        data_dir="/srv/mnist",
        shard_data=True,
        threads=2,
        seed=7,
        ps_recovery="partial",
        barrier_deadline_seconds=5.0,
    )
    kept = TrainingSettings(
        wire_dtype="bfloat16", batch_size=17, threads=2, seed=7, barrier_deadline_seconds=5.0
    ).as_dict()
    for replication, steps in (("async", 2000), ("sync", 200)):
        chosen = {"model": "partition", "replication": replication, "steps": steps}
        assert proof_settings(own, replication, plan(1, 3)).as_dict() == kept | chosen


@pytest.mark.parametrize(("workers", "steps"), [(2, 2000), (10, 2000), (300, 60_000)])
def test_only_the_steps_of_the_asynchronous_proof_grow_with_the_workers(workers: int, steps: int) -> None:
    assert proof_settings(TrainingSettings(), "async", plan(1, workers)).steps == steps
    assert proof_settings(TrainingSettings(), "sync", plan(1, workers)).steps == 200


def test_a_cluster_that_cannot_be_proven_is_refused_with_all_reasons() -> None:
    require_provable(plan(1, 2), {"run_id", "trainer_barrier_deadline_seconds"})
    with pytest.raises(InventoryError) as refusal:
        require_provable(plan(0, 1), {"trainer_model", "trainer_steps"})
    given = "is given with -e, and prove.yml chooses it; expected no value: leave -e"
    assert [f"{problem.what}: {problem.cure}" for problem in refusal.value.problems] == [
        "the inventory has no ps, so no host can hold a shared model; prove.yml expects a group ps"
        " with one host or more: ",
        "the inventory has one worker, on n0, which has no other worker to share a model with; prove.yml "
        "expects two workers or more: ",
        f"trainer_model {given} trainer_model=... out",
        f"trainer_steps {given} trainer_steps=... out",
    ]


def verdict(checks: Mapping[str, bool | None], **metrics: float | None) -> dict[str, Any]:
    of_checks = [{"check": name, "ok": ok, "detail": f"about {name}"} for name, ok in checks.items()]
    figures = {"global_steps": 200, "seconds": 3.14, "metrics": metrics}
    return {
        "verdict": "proven" if all(checks.values()) else "not proven",
        "checks": of_checks,
        "figures": figures,
    }


def lines(cluster: ClusterPlan, *runs: ProofRun) -> list[str]:
    return [line for line, _ in summary(cluster, runs)]


PROVEN = ProofRun("async", "runs/p-async", verdict({"workers_met": True}, parts_found=4.0, parts=4.0))


def test_proven_runs_are_listed_with_their_seconds_and_folders() -> None:
    both = lines(plan(2, 4), PROVEN, ProofRun("sync", "runs/p-sync", PROVEN.verdict))
    assert both == [
        "PROVEN      asynchronously  200 global steps in 3.1 s  runs/p-async",
        "PROVEN      synchronously   200 global steps in 3.1 s  runs/p-sync",
        "Each of the 4 workers knew one of 4 parts of the model, and nothing of the others.",
        "Trained asynchronously and synchronously, the model on the 2 ps holds all 4 parts: the workers "
        "share.",
    ]


def test_a_run_that_is_not_proven_is_named_with_its_reasons() -> None:
    checks = {"ended_well": True, "workers_met": False, "loss_fell": None}
    failed = ProofRun(
        "sync", "runs/p-sync", verdict(checks, parts_found=10.0, parts=300.0, worst_worker=17.0)
    )
    assert not failed.proven
    assert lines(plan(1, 300), PROVEN, failed)[1:] == [
        "NOT PROVEN  synchronously   200 global steps in 3.1 s  runs/p-sync",
        "  - workers met: about workers_met",
        "  - the parts of 290 of 300 workers were not found; the worst is that of worker17",
        "Each of the 300 workers knew one of 300 parts of the model, and nothing of the others.",
        "Trained asynchronously, the model on the ps holds all 300 parts: the workers share.",
        "Trained synchronously, it is not proven that the workers share what they learn.",
    ]


def test_texts_of_hosts_cannot_steer_the_terminal() -> None:
    judged = verdict({"ended_well": False})
    judged["checks"][0]["detail"] = "worker1 failed: \x1b[2J"
    said = lines(plan(1, 4), ProofRun("async", "runs/p-async", judged))
    assert said[1] == "  - ended well: worker1 failed:  [2J"


@pytest.mark.parametrize(
    ("judged", "reasons"),
    [
        ({}, ["  - it was not judged"]),
        (verdict({"loss_fell": None}, parts_found=None, parts=4.0), ["  - loss fell: about loss_fell"]),
        (
            verdict(dict.fromkeys([*"abcdef", "model_converged"], False)),
            [
                "  - model converged: about model_converged",
                *(f"  - {name}: about {name}" for name in "abcd"),
                "  - also e, f",
            ],
        ),
    ],
)
def test_the_reasons_against_a_proof_are_shown_in_few_lines(
    judged: dict[str, Any], reasons: list[str]
) -> None:
    said = lines(plan(1, 4), ProofRun("async", "runs/p-async", judged))
    assert [line for line in said if line.startswith("  -")] == reasons
