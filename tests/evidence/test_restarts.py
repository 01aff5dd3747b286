"""Where the ps counted other steps than a worker recorded: accepted only if the records explain it."""

from pathlib import Path

from tests.evidence.run_folders import Record, checks, detail, events, records, rewrite, verdict_of


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
    assert checks(verdict, False) == {"contributions_add_up"}
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
    first = [
        record for record in every if record["event"] not in {"step", "checkpointed", "evaluated", "finished"}
    ]
    later = [record | {"monotonic": record["monotonic"] + 1000} for record in steps[again:]]
    told = number_again([*steps[: again + 20], *later])
    told = [record | {"pid": every[0]["pid"]} for record in told]
    ending = [record for record in every if record["event"] in {"evaluated", "finished"}]
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
    assert checks(verdict, False) == {"contributions_add_up", "no_restart_from_zero"}


def test_a_checkpoint_that_cannot_be_read_leaves_the_question_open(run: Path) -> None:
    restore_at(run, again=30)
    text = events(run, "worker0").read_text()
    events(run, "worker0").write_text(text.replace('"event": "restored"', '"event": "re'))
    verdict = verdict_of(run)
    assert verdict.exit_code == 2
    assert checks(verdict, None) >= {"records_complete", "contributions_add_up", "no_restart_from_zero"}
