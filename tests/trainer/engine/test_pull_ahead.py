"""Parameters pulled during the previous step: which updates a step waits for, and which it lacks."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorflow as tf

from tests.trainer.engine.transfers import Tasks
from trainer.contract.settings import TrainingSettings
from trainer.contract.step_windows import Read
from trainer.coordination.ledger_parts import FIRST_WORKER
from trainer.engine.asynchronous import AsynchronousGraph
from trainer.engine.training import StepResult, TrainingSession


@pytest.fixture(scope="module")
def tasks() -> Tasks:
    return Tasks(1)


def _counts_before(tensor: tf.Tensor, counters: tf.Variable) -> int:
    """How many counts of steps this waits for."""
    seen: set[tf.Operation] = set()
    waiting = [tensor.op]
    while waiting:
        operation = waiting.pop()
        if operation not in seen:
            seen.add(operation)
            waiting += [*(read.op for read in operation.inputs), *operation.control_inputs]
    return sum(its.type == "AssignAddVariableOp" and its.inputs[0] is counters.handle for its in seen)


@pytest.mark.parametrize("pull_ahead", [False, True])
def test_with_pull_ahead_a_step_is_computed_without_the_count_of_the_step_before(
    tasks: Tasks, *, pull_ahead: bool
) -> None:
    graph, session = tasks.begin(0, TrainingSettings(steps_per_call=5, pull_ahead=pull_ahead))
    session.close()
    assert isinstance(graph, AsynchronousGraph)
    losses, counted = (list(stacked.op.inputs) for stacked in graph.calls[5])
    computed = [0, 0, 1, 2, 3] if pull_ahead else [0, 1, 2, 3, 4]
    assert [_counts_before(loss, graph.counters) for loss in losses] == computed
    # Each step is still counted and applied after the one before.
    assert [_counts_before(row, graph.counters) for row in counted] == [1, 2, 3, 4, 5]


def _taken(session: TrainingSession) -> list[list[StepResult]]:
    return [list(session.steps(10, lambda: None)) for _ in range(20)]


def test_a_single_worker_misses_only_its_own_previous_step(tasks: Tasks) -> None:
    session = tasks.begin(0, TrainingSettings(model="linear", pull_ahead=True))[1]
    session.initialise()
    calls = _taken(session)
    session.close()
    steps = [step for call in calls for step in call]
    assert [(step.global_step_before, step.counters) for step in steps] == [
        (before, (before + 1, 0, before + 1, 0)) for before in range(200)
    ]
    read = [step.read or Read(-1, -1) for step in steps]
    behind = [step.global_step_before - its.global_step for step, its in zip(steps, read, strict=True)]
    assert behind == [its.own_steps_since for its in read]
    assert set(behind) == {0, 1}
    # Nothing is kept between calls.
    assert all(first.read in {None, Read(first.global_step_before, 0)} for first, *_ in calls)


def test_the_step_at_which_parameters_were_read_is_exact_with_two_workers(tasks: Tasks) -> None:
    settings = TrainingSettings(model="linear", pull_ahead=True)
    sessions = [tasks.begin(worker, settings)[1] for worker in (0, 1)]
    sessions[0].initialise()
    with ThreadPoolExecutor(2) as pool:
        both = [[step for call in calls for step in call] for calls in pool.map(_taken, sessions)]
    for session in sessions:
        session.close()
    for worker, own in enumerate(both):
        others = [0, 0, *(step.counters[FIRST_WORKER + 1 - worker] for step in own)]
        read_ahead = 0
        for number, step in enumerate(own):
            assert step.read is not None
            missed_own = step.read.own_steps_since
            assert missed_own == int(step.read.global_step < step.global_step_before)
            read_ahead += missed_own
            # Read after the last step but one, and before the step's own count.
            others_read = step.read.global_step - (number - missed_own)
            assert others[number] <= others_read <= others[number + 2]
        assert read_ahead
