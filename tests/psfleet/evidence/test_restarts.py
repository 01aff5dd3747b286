"""Where the ps counted other steps than a worker recorded: accepted only if the records explain it."""

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


def test_a_session_of_the_client_that_broke_may_have_left_a_tower_uncounted(
    copy_of: Callable[[str], Path],
) -> None:
    """The step was made, and the worker could not count its tower any more."""
    run = copy_of(IN_GRAPH)
    every = records(run, "worker1")
    # Its last window may be of one step, and none is of no step.
    last = max(number for number, record in enumerate(every) if record.get("steps", 0) > 1)
    every[last]["steps"] -= 1
    for record in every[last:]:
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
        pytest.param(kind, marks=[pytest.mark.chaos] if kind.endswith("worker1_came_back") else [])
        for kind in CAME_BACK
    ],
)
def test_a_task_that_was_killed_and_came_back_leaves_a_run_that_is_proven(
    trained: Callable[[str], Path], kind: str
) -> None:
    """Real tasks: what their records and counts then tell of each other must be what is accepted."""
    verdict = verdict_of(trained(kind))
    assert checks(verdict, False, None) == set(), verdict.failing
    assert f"started again: {CAME_BACK[kind][1]} 1 time" in detail(verdict, "ended_well")


def test_a_run_that_was_stopped_and_goes_on_was_not_started_again(run: Path) -> None:
    for task in ("worker0", "worker1", "ps0"):
        first, *more, last = records(run, task)
        stopped, later = last | {"reason": "stopped"}, {"nonce": 7, "pid": 99999}
        rewrite(run, task, [first, stopped, *(record | later for record in (first, *more, last))])
    verdict = verdict_of(run)
    assert detail(verdict, "ended_well").endswith(", resumed 1 time after a stop")
    assert "started again" not in "".join(check.detail for check in verdict.checks)


def test_a_life_that_was_stopped_before_it_met_anyone_is_not_the_last_word(
    copy_of: Callable[[str], Path],
) -> None:
    """As where systemd starts a task again that has done its work, and train.yml ends that life."""
    run = copy_of(IN_GRAPH)
    every = records(run, "worker0")
    later = {"nonce": 7, "pid": 99999, "monotonic": 1.0}
    stopped = every[-1] | later | {"reason": "stopped", "local_step": 0, "global_step": 0}
    rewrite(run, "worker0", [*every, every[0] | later, stopped])
    assert checks(verdict_of(run), False) == set()
