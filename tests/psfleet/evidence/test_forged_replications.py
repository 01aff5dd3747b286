"""Runs of each replication with contradicting records: the intended check finds each."""

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.psfleet.evidence.cases import Case, cases
from tests.psfleet.evidence.replications import STEPS, SYNC, count
from tests.psfleet.evidence.run_folders import (
    begin_with,
    checks,
    edit,
    events,
    rewrite,
    steps_and_others,
    tell_settings,
    verdict_of,
)


def be_in_each_step_twice(run: Path) -> None:
    """The sum is right, but worker 0 would have been both gradients of each step."""
    (step, *_), others = steps_and_others(run, "worker0")
    whole = {"local_step": 2 * STEPS, "steps": 2 * STEPS, "global_step_before": 0, "global_step_after": STEPS}
    rewrite(run, "worker0", [*others[:-1], step | whole, others[-1] | {"local_step": 2 * STEPS}])
    count(run, worker0=2 * STEPS, worker1=0, worker2=0)


def put_another_beside_it(run: Path) -> None:
    shutil.copy(events(run, "worker0"), events(run, "worker1"))
    edit(run, "worker1", "", index=1)


@cases("forged_replications", globals())
def test_each_contradiction_is_found_by_its_check(copy_of: Callable[[str], Path], case: Case) -> None:
    case.hold(copy_of(case.kind))


def test_workers_that_each_trained_alone_are_not_synchronous(
    split_brain: Path, copy_of: Callable[[str], Path]
) -> None:
    """The records of two clusters of one worker claim to be one synchronous cluster."""
    run = Path(shutil.copytree(split_brain, copy_of(SYNC).parent / "split"))
    tell_settings(run, replication="sync")
    begin_with(run, "worker0 worker1", replication="sync", replicas_to_aggregate=2)
    assert {"same_parameter_servers", "workers_met", "contributions_add_up"} <= checks(verdict_of(run), False)
