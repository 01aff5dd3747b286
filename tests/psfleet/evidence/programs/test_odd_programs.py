"""Programs unlike the tutorials: none that shares too little is proven, and the others raise no alarm.

Each takes about a minute of real processes: `make chaos` runs them.
"""

from pathlib import Path

import pytest

from tests.psfleet.evidence.program_folders import run_program
from tests.psfleet.evidence.run_folders import verdict_of

EXAMPLE = Path(__file__).parents[4] / "examples" / "tf1_between_graph.py"
# The calls that docs/programs.md documents, in the example's own loop.
RECORDED = {
    "import tensorflow as tf\n": "import psfleet_records\nimport tensorflow as tf\n",
    "    losses: list[float] = []\n": "    losses: list[float] = []\n"
    "    psfleet_records.started(last_step=options.steps)\n",
    "            losses.append(float(value))\n": "            losses.append(float(value))\n"
    "            psfleet_records.step(at, value, examples=BATCH_SIZE)\n",
    # On a busy machine, too, no worker gets more than some steps ahead of an equal share.
    "        while not session.should_stop():\n": "        while not session.should_stop():\n"
    "            if losses and at < options.steps and len(losses) > at / workers + 8:\n"
    "                at = session.run_step_fn(lambda step_context: step_context.session.run(global_step))\n"
    "                time.sleep(0.005)\n"
    "                continue\n",
    "    return sum(": "    psfleet_records.finished()\n    return sum(",
}
ODD, COORDINATOR = (Path(__file__).with_name(f"odd_{name}.py") for name in ("program", "coordinator"))

# (function of odd_program.py, number of ps, number of workers) -> verdict and a part of its text.
PROGRAMS: dict[tuple[str, int, int], tuple[str, str]] = {
    ("local_variables", 1, 2): ("completed", "other workers do not train worker1 mine"),
    ("takes_over", 1, 2): ("completed", "other workers do not train worker1 mine"),
    ("half_local", 1, 2): ("completed", "other workers do not train worker0 mine"),
    ("own_embedding", 1, 2): ("completed", "other workers do not train worker0 table"),
    ("dropped", 1, 3): ("completed", "gradients of worker2 counted"),
    ("stale", 1, 3): ("completed", "other workers do not train worker2 copy"),
    ("grows", 1, 2): ("completed", "other workers do not train worker0 mine"),
    ("zeros", 1, 2): ("completed", "the gradients of worker1 changed anything"),
    ("noise", 1, 2): (
        "completed",
        "as far as its graph shows, it applies something other than gradients of a loss",
    ),
    ("recorded_alone", 1, 2): ("not proven", "worker1 moved the global step alone"),
    ("plain", 1, 2): ("proven", ""),
    ("plain", 1, 4): ("proven", ""),
    ("plain", 3, 12): ("proven", ""),
    ("plain", 0, 2): ("proven", ""),
    ("synchronous", 1, 2): ("proven", ""),
    ("gan", 1, 2): ("proven", ""),
    ("threads", 1, 2): ("proven", ""),
    ("conditional", 1, 2): ("completed", "a condition in its graph decides whether a run takes a step"),
    ("conditional_v1", 1, 2): ("completed", "a condition in its graph decides whether a run takes a step"),
    ("loss_scale", 1, 2): ("completed", "a condition in its graph decides whether a run takes a step"),
    ("warm_start", 1, 2): ("completed", "the loss fell: the loss went from"),
    ("recorded_with", 1, 2): ("proven", ""),
    ("recorded_with", 1, 4): ("proven", ""),
    ("recorded_after", 1, 2): ("proven", ""),
    ("recorded_threads", 1, 2): ("proven", ""),
    ("open_at_the_end", 1, 2): ("proven", ""),
}


@pytest.mark.chaos
@pytest.mark.parametrize(("how", "ps", "workers"), PROGRAMS)
def test_an_odd_program_gets_its_expected_verdict(tmp_path: Path, how: str, ps: int, workers: int) -> None:
    steps = f"--steps={150 * workers}"
    run = run_program(tmp_path / "run", f"--how={how}", steps, program=ODD, ps=ps, worker=workers)
    verdict, (expected, said) = verdict_of(run), PROGRAMS[how, ps, workers]
    assert verdict.verdict == expected, (verdict.failing, verdict.not_shown)
    assert said in "\n".join([*verdict.not_shown, *(check.detail for check in verdict.checks)])
    logs = "".join(log.read_text() for log in (run / "logs").iterdir())
    assert "psfleet, which looks at this program" not in logs
    assert "sys.meta_path is None" not in logs


@pytest.mark.chaos
@pytest.mark.parametrize("workers", [2, 4])
def test_the_example_with_records_is_proven(tmp_path: Path, workers: int) -> None:
    text = EXAMPLE.read_text()
    for line, lines in RECORDED.items():
        assert text.count(line) == 1
        text = text.replace(line, lines)
    program = tmp_path / EXAMPLE.name
    program.write_text(text)
    verdict = verdict_of(run_program(tmp_path / "run", program=program, ps=1, worker=workers))
    assert verdict.verdict == "proven", (verdict.failing, verdict.not_shown)


@pytest.mark.chaos
@pytest.mark.parametrize("alone", [True, False])
def test_work_for_a_coordinator_counts_as_training_only_if_it_changes_the_model(
    tmp_path: Path, alone: bool
) -> None:
    run = run_program(tmp_path / "run", *(["alone"] if alone else []), program=COORDINATOR, chief=1)
    verdict = verdict_of(run)
    # Its checkpoints lie on its own disk, and the losses that it fetches are seen.
    assert verdict.verdict == ("completed" if alone else "proven"), verdict.failing
    shared = "no function that the coordinator gave them is seen to change a variable of the model"
    assert (shared in "\n".join(verdict.not_shown)) is alone
