"""Where the ps counted other steps than a worker recorded: accepted only if the records explain it."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.psfleet.evidence.adversaries.pace import Pace, stands_still
from tests.psfleet.evidence.replications import IN_GRAPH
from tests.psfleet.evidence.run_folders import (
    Record,
    checks,
    detail,
    events,
    records,
    rewrite,
    train,
    verdict_of,
)
from tests.trainer.processes import Cluster

# Found too where the other worker trained at that time, which is up to the machine.
MAYBE = {"steps_accounted"}
END = {"evaluated", "checkpointed", "finished"}


def number_again(steps: list[Record]) -> list[Record]:
    """The same windows with local steps counted from 0, as by a new process."""
    done = 0
    numbered = []
    for record in steps:
        done += record["steps"]
        numbered.append(record | {"local_step": done, "pid": 99999})
    return numbered


def kill_and_restart_worker1(run: Path, unwritten: int) -> None:
    """Worker 1 dies at its 40th window, the last ones `unwritten`, and goes on as a new process."""
    every = records(run, "worker1")
    start = [record for record in every if record["event"] in {"started", "peers_ready"}]
    steps = [record for record in every if record["event"] == "step"]
    again = [
        record | {"nonce": 7, "pid": 99999} if record["event"] == "started" else record | {"pid": 99999}
        for record in start
    ]
    for record in again:
        if record["event"] == "peers_ready":
            record["worker_nonces"] = record["worker_nonces"] | {"worker1": 7}
    second = number_again(steps[40:])
    finished = every[-1] | {"local_step": second[-1]["local_step"], "pid": 99999}
    rewrite(run, "worker1", [*start, *steps[: 40 - unwritten], *again, *second, finished])


def test_a_restarted_worker_may_have_left_its_last_window_unwritten(run: Path) -> None:
    kill_and_restart_worker1(run, unwritten=2)
    verdict = verdict_of(run)
    assert verdict.exit_code == 0, verdict.failing
    assert "started again: worker1 1 time" in detail(verdict, "ended_well")
    assert verdict.figures["workers"]["worker1"]["restarts"] == 1


def test_a_restart_explains_no_other_difference(run: Path) -> None:
    kill_and_restart_worker1(run, unwritten=0)
    every = records(run, "worker1")
    position = next(
        number for number, record in enumerate(every) if record["pid"] == 99999 and record["event"] == "step"
    )
    second = [record for record in every[position + 5 :] if record["event"] == "step"]
    shorter = number_again(
        [record for record in every[position : position + 3] if record["event"] == "step"] + second
    )
    finished = every[-1] | {"local_step": shorter[-1]["local_step"]}
    rewrite(run, "worker1", [*every[:position], *shorter, finished])

    verdict = verdict_of(run)
    assert MAYBE | checks(verdict, False) == {"contributions_add_up", *MAYBE}
    assert "worker1: the chief counted" in detail(verdict, "contributions_add_up")


def restore_at(run: Path, again: int) -> None:
    """The chief's windows after `again` steps happen twice: the ps was lost and restored in between."""
    every = records(run, "worker0")
    steps = [record for record in every if record["event"] == "step"]
    repeated = steps[again : again + 20]
    step = repeated[0]["global_step_before"]
    back = [
        every[0] | {"event": "recovering", "reason": "ps0 was lost", "monotonic": 1.0},
        every[0] | {"event": "restored", "global_step": step, "checkpoint": "model.ckpt", "monotonic": 2.0},
        *(record | {"monotonic": 3.0} for record in every if record["event"] == "peers_ready"),
    ]
    first = [record for record in every if record["event"] not in {"step", *END}]
    later = [record | {"monotonic": record["monotonic"] + 1000} for record in steps[again:]]
    told = number_again([*steps[: again + 20], *later])
    told = [record | {"pid": every[0]["pid"]} for record in told]
    ending = [record for record in every if record["event"] in END]
    for record in ending:
        if record["event"] == "finished":
            record["local_step"] = told[-1]["local_step"]
    rewrite(run, "worker0", [*first, *told[: again + 20], *back, *told[again + 20 :], *ending])


def test_steps_after_a_restored_checkpoint_may_be_lost(run: Path) -> None:
    restore_at(run, again=30)
    verdict = verdict_of(run)
    assert verdict.exit_code == 0, verdict.failing
    assert "restored from a checkpoint 1 time" in detail(verdict, "no_restart_from_zero")


def test_without_the_checkpoint_lost_steps_are_not_accepted(run: Path) -> None:
    restore_at(run, again=30)
    rewrite(run, "worker0", [record for record in records(run, "worker0") if record["event"] != "restored"])
    verdict = verdict_of(run)
    assert MAYBE | checks(verdict, False) == {"contributions_add_up", "no_restart_from_zero", *MAYBE}


def test_a_checkpoint_that_cannot_be_read_leaves_the_question_open(run: Path) -> None:
    restore_at(run, again=30)
    text = events(run, "worker0").read_text()
    events(run, "worker0").write_text(text.replace('"event": "restored"', '"event": "re'))
    verdict = verdict_of(run)
    assert verdict.exit_code == 2
    assert checks(verdict, None) >= {"records_complete", "contributions_add_up", "no_restart_from_zero"}


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
    ("replication", "killed", "paced", "pace"),
    [
        ("in_graph", "worker1", "worker0", Pace(stops_itself_at=101)),
        ("in_graph", "worker0", "worker0", Pace(kills_itself_at=101)),
        ("sync", "worker1", "worker1", Pace(kills_itself_at=101)),
    ],
    ids=["in_graph-worker1", "in_graph-client", "sync-worker1"],
)
def test_a_task_that_was_killed_and_came_back_leaves_a_run_that_is_proven(
    tmp_path: Path, replication: str, killed: str, paced: str, pace: Pace
) -> None:
    """Real tasks: what their records and counts then tell of each other must be what is accepted."""

    def kill(cluster: Cluster) -> None:
        """It kills itself, or is killed while the client stands still."""
        if paced == killed:
            cluster.until(lambda: cluster.has_ended(killed), "a task that killed itself")
        else:
            cluster.until(lambda: bool(cluster.records(paced, "started")), "a client")
            pid = cluster.only(paced, "started").pid
            cluster.until(lambda: stands_still(pid), "a client that stands still")
            cluster.signal(killed, signal.SIGKILL)
        cluster.start(killed)
        cluster.signal(paced, signal.SIGCONT)

    flags = ("--model=linear", "--steps=400", f"--replication={replication}")
    run = train(tmp_path, 2, flags, kill, programs={paced: pace.program})
    verdict = verdict_of(run)
    assert checks(verdict, False, None) == set(), verdict.failing
    assert f"started again: {killed} 1 time" in detail(verdict, "ended_well")
