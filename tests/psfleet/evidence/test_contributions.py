"""Whether the steps that the chief counted of each worker are those that the workers recorded."""

from collections.abc import Callable
from pathlib import Path

from tests.psfleet.evidence.cases import ANY, Case, cases, do
from tests.psfleet.evidence.folder_damages import take_no_step
from tests.psfleet.evidence.replications import IN_GRAPH, STEPS, count, counted
from tests.psfleet.evidence.run_folders import (
    checks,
    fail,
    records,
    rewrite,
    steps_and_others,
    tell_settings,
    verdict_of,
)


def count_a_step_too_many(run: Path) -> None:
    count(run, worker1=counted(run)["worker1"] + 1)


def count_for_the_other(run: Path) -> None:
    steps = counted(run)
    count(run, worker0=steps["worker0"] - 9, worker1=steps["worker1"] + 9)


def be_in_each_step_twice(run: Path) -> None:
    """The sum is right, but worker 0 would have been both gradients of each step."""
    (step, *_), others = steps_and_others(run, "worker0")
    whole = {"local_step": 2 * STEPS, "steps": 2 * STEPS, "global_step_before": 0, "global_step_after": STEPS}
    rewrite(run, "worker0", [*others[:-1], step | whole, others[-1] | {"local_step": 2 * STEPS}])
    count(run, worker0=2 * STEPS, worker1=0, worker2=0)


CONTRIBUTIONS_ADD_UP = {
    "a failure with steps unrecorded": Case(
        (count_for_the_other, do(fail, "worker1", "bug")),
        1,
        "worker0: the chief counted",
        failing="contributions_add_up ended_well",
    ),
    "a step too many": Case(count_a_step_too_many, 1, "contributions add up to 40"),
    "steps that are counted for the other": Case(count_for_the_other, 1, "worker0: the chief counted"),
    # Whether late gradients make up for those that lack in each step is chance.
    "settings that ask for all replicas": Case(
        do(tell_settings, replicas_to_aggregate=3), 1, "300 global steps of 3", failing=ANY, kind="sync"
    ),
    "steps of a stranger": Case(do(count, worker9=0), 1, "steps of worker9, which is no", kind="sync"),
    "counts of asynchronous steps where everything else says sync": Case(
        do(count, worker0=99, worker1=99, worker2=99),
        1,
        "300 global steps of 2 gradients are 600",
        kind="sync",
    ),
    "one worker in a step twice": Case(
        be_in_each_step_twice,
        1,
        "600 gradients in 300 global steps, and each step takes one",
        failing="contributions_add_up fair_shares steps_interleave",
        kind="sync",
    ),
    "a tower that was never computed": Case(
        do(take_no_step, "worker2"),
        1,
        "worker2: the chief counted 300 of its steps, its own records show 0",
        failing="contributions_add_up workers_overlap steps_interleave steps_accounted",
        kind="in_graph",
    ),
    "a tower that was computed too often": Case(
        do(count, worker0=290, worker1=310), 1, "worker1: 310 gradients in 300", kind="in_graph"
    ),
    "a tower less": Case(do(count, worker2=299), 1, "300 global steps of 3 gradients", kind="in_graph"),
}


@cases(contributions_add_up=CONTRIBUTIONS_ADD_UP)
def test_each_contradiction_is_named(copy_of: Callable[[str], Path], case: Case) -> None:
    case.hold(copy_of(case.kind))


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
