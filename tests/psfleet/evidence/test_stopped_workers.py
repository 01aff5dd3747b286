"""A worker that was told to stop and came back, while a client had its server compute towers."""

from collections.abc import Callable
from pathlib import Path

from tests.psfleet.evidence.replications import IN_GRAPH
from tests.psfleet.evidence.run_folders import checks, detail, records, rewrite, verdict_of


def stop_and_come_back(run: Path, reason: str) -> None:
    """Split worker1's life in two at half its steps; of the last five before that the first does not tell."""
    every = records(run, "worker1")
    step = next(record for record in every if record["event"] == "step")
    others = [record for record in every[:-1] if record["event"] != "step"]
    steps = every[-1]["local_step"]
    half = steps // 2
    first = {
        "local_step": half - 5,
        "steps": half - 5,
        "global_step_before": 0,
        "global_step_after": half - 5,
    }
    later = {"local_step": steps - half, "steps": steps - half, "pid": 99999}
    span = {"global_step_before": half, "global_step_after": steps}
    stopped = every[-1] | {"reason": reason, "local_step": half - 5}
    again = [record | {"pid": 99999, "monotonic": record["monotonic"] + 1e6} for record in others]
    ended = every[-1] | {"local_step": steps - half, "pid": 99999}
    rewrite(run, "worker1", [*others, step | first, stopped, *again, step | later | span, ended])


def test_towers_after_the_last_look_of_a_stopped_server_are_accepted(copy_of: Callable[[str], Path]) -> None:
    run = copy_of(IN_GRAPH)
    stop_and_come_back(run, "stopped")
    verdict = verdict_of(run)
    assert "contributions_add_up" in checks(verdict, True), detail(verdict, "contributions_add_up")


def test_towers_lost_by_a_worker_that_had_finished_are_not(copy_of: Callable[[str], Path]) -> None:
    run = copy_of(IN_GRAPH)
    stop_and_come_back(run, "last step")
    assert "contributions_add_up" in checks(verdict_of(run), False)
