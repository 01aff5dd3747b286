"""What train.yml advises about a run that failed: a repaired program needs a new run, others are resumed."""

from typing import Any

import pytest

from psfleet.watch.failed_run import resume_advice
from trainer.contract.exit_codes import (
    CLUSTER_BROKE,
    CONFIGURATION,
    GIVEN_UP,
    OUT_OF_MEMORY,
    PEERS_MISSING,
    PROGRAM,
    USAGE,
)

AGAIN = "  ansible-playbook train.yml -e run_id=r"
DEPLOY = "  ansible-playbook deploy.yml"
ENDED_BY_PLAYBOOK = {"name": "ps0", "failed": False, "exit_code": 143}


def advice(*codes: int, step: object = 0, program: dict[str, Any] | None) -> list[str]:
    endings = [{"name": f"worker{n}", "failed": True, "exit_code": code} for n, code in enumerate(codes)]
    run = {"id": "r", "settings": {"program": program}}
    return resume_advice(run, step, [ENDED_BY_PLAYBOOK, *endings]).splitlines()


@pytest.mark.parametrize("code", [PROGRAM, USAGE, GIVEN_UP, 1, 2])
def test_a_program_at_fault_is_repaired_deployed_and_begun_anew(code: int) -> None:
    said = advice(CLUSTER_BROKE, code, program={"name": "mnist"})
    assert said[0].startswith("Run r failed, and a run keeps its program.")
    assert said[1:] == [DEPLOY, "  ansible-playbook train.yml -e program=mnist"]
    assert advice(code, program={"name": ""})[1:] == [DEPLOY, "  ansible-playbook train.yml"]
    # After steps, the cause may have been elsewhere, such as in the data.
    assert advice(code, step=7, program={"name": ""})[3:] == [
        "If the cause was elsewhere, this command resumes it from its last checkpoint:",
        AGAIN,
    ]


@pytest.mark.parametrize(
    "codes", [(), (CLUSTER_BROKE,), (137,), (OUT_OF_MEMORY,), (CONFIGURATION, PEERS_MISSING)]
)
def test_a_program_that_lost_a_task_a_host_or_memory_is_resumed(codes: tuple[int, ...]) -> None:
    said = advice(*codes, step=7, program={"name": "mnist"})
    assert said == [
        "Run r failed. Once its cause is fixed, this command resumes it from its last checkpoint:",
        AGAIN,
    ]


@pytest.mark.parametrize("step", [0, None, "7"])
def test_without_a_step_nothing_is_said_of_a_checkpoint(step: object) -> None:
    for program in (None, {"name": "mnist"}):
        said = advice(PEERS_MISSING, step=step, program=program)
        assert said == [
            "Run r failed before psfleet saw a step. Once its cause is fixed, this command goes on with it:",
            AGAIN,
        ]


def test_a_model_of_psfleet_is_always_resumed() -> None:
    assert advice(PROGRAM, step=7, program=None)[1] == AGAIN
