"""Steps that a program of one's own does not record: they must not pass for steps of other workers."""

from pathlib import Path

import pytest

from tests.evidence.run_folders import Record, checks, records, rewrite, verdict_of

WORKERS = ("worker0", "worker1")


def tell_every(run: Path, nth: int, windows: int = 100, window_steps: int = 2) -> None:
    """Let each worker count global steps of its own, and record every `nth` of them only."""
    for worker in WORKERS:
        every = records(run, worker)
        step = next(record for record in every if record["event"] == "step")
        others = [record for record in every if record["event"] != "step"]
        told: list[Record] = []
        for number in range(windows):
            before = number * window_steps * nth
            told.append(
                step
                | {
                    "local_step": (number + 1) * window_steps,
                    "steps": window_steps,
                    "global_step_before": before if number else nth - 1,
                    "global_step_after": before + window_steps * nth,
                    "loss": 1 / (number + 1),
                    "loss_mean": 1 / (number + 1),
                }
            )
        last = others[-1] | {"local_step": windows * window_steps}
        rewrite(run, worker, [others[0], *told, *others[1:-1], last])


@pytest.mark.parametrize(
    ("nth", "said"),
    [(10, "its records tell 400 of 1991 steps"), (2, "worker0 tells exactly one of 2 global steps")],
)
def test_workers_that_train_alone_and_tell_only_some_steps_are_not_proven(
    recorded: Path, nth: int, said: str
) -> None:
    tell_every(recorded, nth)
    verdict = verdict_of(recorded)
    assert verdict.verdict == "completed", verdict.failing
    assert "steps_interleave" not in checks(verdict, True, False, None)
    assert f"the workers trained one model together: {said}" in "\n".join(verdict.not_shown)
