"""A difference between the steps that the ps counted and a worker recorded must have a recorded cause."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.psfleet.evidence.adversaries.real_runs import CAME_BACK
from tests.psfleet.evidence.replications import IN_GRAPH
from tests.psfleet.evidence.run_folders import (
    checks,
    detail,
    records,
    rewrite,
    verdict_of,
)


def test_a_broken_session_of_the_client_may_leave_a_tower_unrecorded(
    copy_of: Callable[[str], Path],
) -> None:
    """The step was applied, but the worker could no longer count its tower."""
    run = copy_of(IN_GRAPH)
    every = records(run, "worker1")
    # Its last window may have one step, and no window may have none.
    last = max(number for number, record in enumerate(every) if record.get("steps", 0) > 1)
    every[last]["steps"] -= 1
    for record in every[last:]:
        if "local_step" in record:
            record["local_step"] -= 1
    rewrite(run, "worker1", every)
    assert checks(verdict_of(run), False) == {"contributions_add_up", "steps_accounted"}

    of_client = records(run, "worker0")
    broken = of_client[0] | {"event": "recovering", "reason": "worker1 was lost"}
    rewrite(run, "worker0", [*of_client[:-1], broken, of_client[-1]])
    assert "contributions_add_up" in checks(verdict_of(run), True)

    again = of_client[0] | {"nonce": 7, "pid": 99999, "monotonic": 1.0}
    rewrite(run, "worker0", [again, *of_client])
    assert "contributions_add_up" in checks(verdict_of(run), True)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind == "in_graph_client_came_back" else [pytest.mark.chaos])
        for kind in CAME_BACK
    ],
)
def test_a_run_with_a_killed_and_restarted_task_is_proven(trained: Callable[[str], Path], kind: str) -> None:
    """The records and counts of real restarted tasks must be accepted."""
    verdict = verdict_of(trained(kind))
    assert checks(verdict, False, None) == set(), verdict.failing
    assert f"started again: {CAME_BACK[kind][1]} 1 time" in detail(verdict, "ended_well")


@pytest.mark.chaos
def test_a_run_whose_ps_restored_alone_is_proven_and_says_so(trained: Callable[[str], Path]) -> None:
    run = trained("tables_ps_alone")
    verdict = verdict_of(run)
    assert checks(verdict, False, None) == set(), verdict.failing
    restored = next(record for record in records(run, "worker0") if record["event"] == "ps_restored")
    words = f"ps1 restored its part of global step {restored['checkpoint_step']} alone at 201"
    assert verdict.headline.endswith(f"and it converged; {words}")
    assert detail(verdict, "no_restart_from_zero") == f"initialised once; {words}"
    faults = verdict.figures["faults"]
    assert (faults["steps_lost"], faults["restores"]) == (0, [])
    lost = 201 - restored["checkpoint_step"]
    assert [(its["task"], its["steps_lost"]) for its in faults["ps_restores"]] == [("ps1", lost)]
    assert 0 < lost <= 201


def test_a_resumed_run_counts_as_resumed_and_not_as_restarted(run: Path) -> None:
    for task in ("worker0", "worker1", "ps0"):
        first, *more, last = records(run, task)
        stopped, later = last | {"reason": "stopped"}, {"nonce": 7, "pid": 99999}
        rewrite(run, task, [first, stopped, *(record | later for record in (first, *more, last))])
    verdict = verdict_of(run)
    assert detail(verdict, "ended_well").endswith(", resumed 1 time after a stop")
    assert "started again" not in "".join(check.detail for check in verdict.checks)


def test_a_process_that_was_stopped_before_it_met_the_others_is_ignored(
    copy_of: Callable[[str], Path],
) -> None:
    """Systemd may restart a task that has finished, until train.yml ends that process."""
    run = copy_of(IN_GRAPH)
    every = records(run, "worker0")
    later = {"nonce": 7, "pid": 99999, "monotonic": 1.0}
    stopped = every[-1] | later | {"reason": "stopped", "local_step": 0, "global_step": 0}
    rewrite(run, "worker0", [*every, every[0] | later, stopped])
    assert checks(verdict_of(run), False) == set()
