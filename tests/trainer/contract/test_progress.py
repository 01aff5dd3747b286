import pytest

from trainer.contract.progress import Progress, last_line_of
from trainer.host.task_traces import LOG_END_BYTES


def test_progress_fields_are_read_as_written() -> None:
    of_run = {"phase": "waiting", "wall": 1.5, "global_step": 7, "last_step": 9, "loss": 0.25, "reason": "x"}
    refused = {"task": "worker1", "address": "10.0.0.2:2222", "reason": "connection refused"}
    missing = [refused, {"task": "ps0", "reason": "started anew"}, "chief0"]
    told = {**of_run, "contributions": [3, 4], "missing": missing, "restarts": [0, 2]}
    words = ("worker1 at 10.0.0.2:2222 (connection refused)", "ps0 (started anew)", "chief0")
    progress = Progress.from_mapping(told)
    assert progress == Progress("waiting", 1.5, 7, 9, 0.25, (3, 4), words, "x", (0, 2))
    assert progress.waiting == f"waiting for {'; '.join(words)}"
    assert progress.awaited_tasks == {"worker1", "ps0", "chief0"}
    assert Progress.from_mapping({}) == Progress("starting")


def test_the_last_evaluation_is_told_in_a_few_words() -> None:
    found = {"accuracy": 0.96111, "cross_entropy": 0.1234567, **dict.fromkeys("abcdef", 1)}
    progress = Progress.from_mapping({"evaluation": {"global_step": 1500, "metrics": found}})
    assert progress.evaluation == "accuracy 0.9611, cross_entropy 0.1235, a 1, b 1 at step 1500"


@pytest.mark.parametrize(
    ("evaluation", "words"),
    [
        ({}, ""),
        ({"global_step": 5, "metrics": {"loss": None}}, ""),
        ({"global_step": 5, "metrics": {"loss": "low", "bias": 10**400, "weight": 2}}, "weight 2 at step 5"),
        ({"global_step": "5", "metrics": {"loss": 1}}, ""),
        ({"metrics": {"loss": 1}}, ""),
        ({"global_step": 5, "metrics": [1]}, ""),
        ({"global_step": 5, "metrics": {"\x1b[2J" + 99 * "a": 1}}, f" [2J{33 * 'a'}... 1 at step 5"),
    ],
)
def test_an_evaluation_that_a_host_made_up_shows_what_is_a_number(evaluation: object, words: str) -> None:
    assert Progress.from_mapping({"evaluation": evaluation}).evaluation == words


def test_a_run_is_over_in_the_phases_finished_stopped_and_failed() -> None:
    phases = ("starting", "waiting", "training", "ending", "finished", "stopped", "failed")
    assert [phase for phase in phases if Progress(phase).is_over] == ["finished", "stopped", "failed"]


def test_elapsed_time_and_the_last_line_do_not_make_progress_differ() -> None:
    told = Progress("training", wall=1.5, elapsed=3.0, last_line="a")
    assert told.same_content(Progress("training", wall=1.5, elapsed=4.0, last_line="b"))
    assert not told.same_content(Progress("training", wall=2.0, elapsed=3.0, last_line="a"))


@pytest.mark.parametrize("value", [None, "12", {"worker0": 1}, True, float("nan"), float("inf"), 10**400])
def test_progress_values_of_a_wrong_type_or_range_count_as_unknown(value: object) -> None:
    numbers = dict.fromkeys(("wall", "global_step", "last_step", "loss"), value)
    lists = dict.fromkeys(("contributions", "missing", "restarts", "evaluation"), value)
    assert Progress.from_mapping(numbers | lists) == Progress("starting")
    counted = Progress.from_mapping({"contributions": [value], "restarts": [value]})
    assert (counted.contributions, counted.restarts) == ((0,), (0,))


NOISE = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795488934.595822    8073 port.cc:153] oneDNN custom operations are on.
2026-11-24 02:47:34.595822: I tensorflow/core/platform/cpu_feature_guard.cc:210] This binary is optimized
To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow
  warnings.warn("closed")
\t [[{{node IteratorGetNext}}]]
  File "/opt/psfleet/ops.py", line 1221, in from_node_def
"""


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ("one\ntwo X\n\n", "two X"),
        ("1/9 [=>..]\r5/9 [==>.]\r9/9 [====]", "9/9 [====]"),
        ("1/9\r9/9\r", "9/9"),
        ("\x1b[1m9/9\x1b[0m \x1b[32m----\x1b[0m\x1b]0;title\x07 loss:\t1\n", "9/9 ---- loss: 1"),
        ("bell\x07 \x9b2J\u202egnp\n", "bell 2J gnp"),
        ("\x1b[2J\n", ""),
        (f"epoch 1\n{NOISE}", "epoch 1"),
        (f"{NOISE}E0000 00:00:1795.5  9 x.cc:1] is lost", "E0000 00:00:1795.5 9 x.cc:1] is lost"),
        ('{\n  "auc": 0.81\n}\n', '"auc": 0.81'),
        ("损失 0.5\n=====\n", "损失 0.5"),
        ("", ""),
    ],
)
def test_the_last_line_of_a_program_is_made_printable(printed: str, line: str) -> None:
    assert last_line_of(printed) == line


def test_the_end_of_a_line_that_was_cut_is_no_last_line() -> None:
    polls = (
        "I0000 00:00:1795846130.724347   15648 master.cc:243] Scanning workers for devices: 2 total workers\n"
    )
    printed = f"step 20\n{polls * 100}"
    assert last_line_of(printed[-LOG_END_BYTES:]) == ""
    assert last_line_of(f"half of it\nstep 21\n{printed}"[-LOG_END_BYTES:]) == ""
    assert last_line_of(f"step 21\n{polls * 20}") == "step 21"
