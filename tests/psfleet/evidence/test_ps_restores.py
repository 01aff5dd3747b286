"""What a ps restored alone is compared with what was saved of it; a ps that restored nothing is found."""

from pathlib import Path

import pytest

from psfleet.evidence.answer import Findings
from psfleet.evidence.ps_restores import check_ps_restores, ps_restores_in_words, steps_of_parts_lost
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import TaskRecords
from trainer.contract.records import Record
from trainer.contract.run_tasks import RunTask

Event = tuple[str, dict[str, object]]
SAVED: Event = ("checkpointed", {"global_step": 50, "ps_fingerprints": {"ps0": "aa", "ps1": "bb"}})
RESTORED: Event = ("restored", {"global_step": 50, "checkpoint": "model.ckpt-50"})
FINISHED: Event = ("finished", {"reason": "run over"})


def _met(ps0: int, ps1: int) -> Event:
    return "peers_ready", {"ps_nonces": {"ps0": ps0, "ps1": ps1}, "global_step": 0}


def _alone(task: str = "ps1", fingerprint: str = "bb", step: int = 50) -> Event:
    fields = {"global_step": 60, "checkpoint": f"model.ckpt-{step}", "checkpoint_step": step}
    return "ps_restored", {**fields, "task": task, "fingerprint": fingerprint}


def _records(job: str, index: int, *events: Event, damaged: bool = False) -> TaskRecords:
    """The records of a task; each `started` begins a process."""
    records, pid = [], 0
    for event, fields in events:
        pid += event == "started"
        records.append(Record(event, "run", job, index, "host", pid, "", "", 0.0, 0.0, fields))
    return TaskRecords(f"{job}{index}", tuple(records), unreadable=("a line",) if damaged else ())


def _run(*chief: Event, starts: int = 2, damaged: bool = False) -> Run:
    of_ps: list[Event] = [("started", {"nonce": nonce}) for nonce in range(1, starts + 1)]
    tasks = {
        "worker0": _records("worker", 0, *chief),
        "ps1": _records("ps", 1, *of_ps, FINISHED, damaged=damaged),
    }
    expected = (RunTask("ps", 0, "host"), RunTask("ps", 1, "host"), RunTask("worker", 0, "host"))
    return Run(Path(), "run", expected=expected, tasks=tasks)


def _found(run: Run) -> tuple[list[str], list[str]]:
    findings = Findings()
    check_ps_restores(run, findings)
    return findings.wrong, findings.lacking


UNRECORDED = (
    "the chief did not record what ps1 held of the checkpoint of global step {}, of which it restored"
)
NOTHING = "{} was started again, and the chief restored nothing there"
OF_NO_TEXT: Event = ("checkpointed", {"global_step": 50, "ps_fingerprints": {"ps1": 5}})
OF_NO_PS: Event = ("checkpointed", {"global_step": 50, "ps_fingerprints": 7})


@pytest.mark.parametrize(
    ("chief", "wrong", "lacking"),
    [
        ([SAVED, _met(1, 1), _alone(), _met(1, 2)], "", ""),
        (
            [SAVED, _alone(fingerprint="cc")],
            "ps1 restored cc alone from global step 50, where bb had been",
            "",
        ),
        # That of another ps, which is of the same model.
        ([SAVED, _alone(fingerprint="aa")], "ps1 restored aa alone", ""),
        ([SAVED, _alone(task="ps7")], "ps7 restored its part alone, and is no ps of the run", ""),
        ([SAVED, _alone(step=40)], "", UNRECORDED.format(40)),
        ([_alone(), SAVED], "", UNRECORDED.format(50)),
        ([OF_NO_TEXT, _alone()], "", UNRECORDED.format(50)),
        ([OF_NO_PS, _alone()], "", UNRECORDED.format(50)),
        # A ps that was started again has to be set.
        ([SAVED, _met(1, 1), _met(1, 2)], NOTHING.format("ps1"), ""),
        ([SAVED, _met(1, 1), RESTORED, _met(1, 2), _met(1, 2)], "", ""),
        ([SAVED, _met(1, 1), _alone(), _met(2, 2)], NOTHING.format("ps0"), ""),
        ([SAVED, _met(1, 1), _alone(), RESTORED, _met(2, 2)], "", ""),
        ([SAVED, _met(1, 1), RESTORED, _met(1, 2), _met(1, 3)], NOTHING.format("ps1"), ""),
    ],
)
def test_a_part_that_is_not_what_was_saved_is_found(chief: list[Event], wrong: str, lacking: str) -> None:
    found = _found(_run(*chief))
    for texts, expected in zip(found, (wrong, lacking), strict=True):
        assert len(texts) == bool(expected), found
        assert expected in "".join(texts)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_ps_that_was_never_started_again_restored_nothing(*, damaged: bool) -> None:
    never = ["ps1 restored its part alone, and was never started again"]
    expected = ([], never) if damaged else (never, [])
    assert _found(_run(SAVED, _alone(), starts=1, damaged=damaged)) == expected


def test_parts_that_were_restored_alone_are_told_with_their_steps() -> None:
    run = _run(SAVED, _alone(), _alone("ps1", step=40))
    first, second = (f"ps1 restored its part of global step {step} alone at 60" for step in (50, 40))
    assert ps_restores_in_words(run) == f"{first}; {second}"
    # 10 and 20 steps, each of one of two ps.
    assert steps_of_parts_lost(run) == 15
    assert ps_restores_in_words(_run(RESTORED)) == ""
    many = ps_restores_in_words(_run(*[_alone("ps1" + "x" * 99)] * 9))
    assert many.endswith("; and 5 more")
    assert len(many) < 400
