from dataclasses import replace

import pytest

from trainer.progress import Progress, Watcher, last_line_of


def reading(**values: object) -> Progress:
    return Progress.from_mapping({"phase": "training", "last_step": 400, **values})


def test_names_each_missing_task_with_its_reason() -> None:
    missing = [{"task": "worker1", "address": "10.0.0.2:2222", "reason": "connection refused"}]
    assert (
        Watcher().line(reading(phase="waiting", missing=missing))
        == "waiting for worker1 at 10.0.0.2:2222 (connection refused)"
    )


def test_rates_are_of_the_last_interval_and_per_worker() -> None:
    watcher = Watcher()
    watcher.line(reading(wall=10.0, global_step=100, contributions=[50, 50]))
    line = watcher.line(reading(wall=12.0, global_step=200, loss=0.25, contributions=[130, 70]))
    assert "step 200/400" in line
    assert "loss 0.2500" in line
    assert "worker0 40/s  worker1 10/s" in line
    assert "0:04 left" in line


def test_a_reading_seen_twice_keeps_the_rates() -> None:
    watcher = Watcher()
    watcher.line(reading(wall=10.0, contributions=[0]))
    fresh = reading(wall=11.0, global_step=7, contributions=[7])
    assert watcher.line(fresh) == watcher.line(fresh)


def test_many_workers_are_summed_up() -> None:
    watcher = Watcher()
    watcher.line(reading(wall=0.0, contributions=[0] * 6))
    assert "6 workers, 1 to 6 steps/s each" in watcher.line(
        reading(wall=1.0, contributions=[1, 2, 3, 4, 5, 6])
    )


def test_of_many_workers_those_that_stand_are_named() -> None:
    watcher = Watcher()
    watcher.line(reading(wall=0.0, contributions=[0] * 6))
    line = watcher.line(reading(wall=1.0, contributions=[1, 2, 3, 0, 5, 0]))
    assert "6 workers, 0 to 5 steps/s each (worker3; worker5 at none)" in line


@pytest.mark.parametrize("contributions", [[100, 100, 0], [50, 50, 50]])
def test_the_time_left_is_by_global_steps_whatever_went_into_them(contributions: list[int]) -> None:
    watcher = Watcher()
    watcher.line(reading(wall=10.0, global_step=100, contributions=[0, 0, 0]))
    line = watcher.line(reading(wall=12.0, global_step=200, contributions=contributions))
    assert "0:04 left" in line


def test_a_step_that_waits_for_a_worker_names_it() -> None:
    missing = [{"task": "worker1", "address": "10.0.0.2:2222", "reason": "connection refused"}]
    line = Watcher().line(reading(phase="waiting", global_step=200, missing=missing))
    assert " 50%  step 200/400  waiting for worker1 at 10.0.0.2:2222 (connection refused)" in line


def test_of_many_missing_tasks_some_are_named() -> None:
    missing = [{"task": f"worker{index}", "address": "", "reason": "?"} for index in range(9)]
    line = Watcher().line(reading(phase="waiting", missing=missing))
    assert line == "waiting for worker0 (?); worker1 (?); worker2 (?); worker3 (?) and 5 more"


def test_an_ending_run_says_for_whom_it_waits() -> None:
    missing = [{"task": "worker1", "address": "10.0.0.2:2222", "reason": "its port still answers"}]
    line = Watcher().line(reading(phase="ending", last_step=0, missing=missing))
    assert line == "ending: waiting for worker1 at 10.0.0.2:2222 (its port still answers)"


def test_a_program_without_steps_shows_the_time_and_what_it_printed_last() -> None:
    now = replace(reading(last_step=0), elapsed=3725.0, last_line="epoch 3: 0.91")
    assert Watcher().line(now) == "1:02:05  | epoch 3: 0.91"


def test_a_program_that_tells_its_steps_shows_them() -> None:
    now = replace(reading(last_step=0, global_step=7, loss=0.5), elapsed=5.0)
    assert Watcher().line(now) == "0:05  step 7  loss 0.5000"
    assert "step 7/10" in Watcher().line(reading(last_step=10, global_step=7))


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ("one\ntwo\n\n", "two"),
        ("1/9 [=>..]\r5/9 [==>.]\r9/9 [====]", "9/9 [====]"),
        ("1/9\r9/9\r", "9/9"),
        ("\x1b[1m9/9\x1b[0m \x1b[32m----\x1b[0m\x1b]0;title\x07 loss:\t1\n", "9/9 ---- loss: 1"),
        ("bell\x07 \x9b2J\u202egnp\n", "bell 2J gnp"),
        ("\x1b[2J\n", ""),
        ("", ""),
    ],
)
def test_the_last_line_of_a_program_does_not_steer_the_terminal(printed: str, line: str) -> None:
    assert last_line_of(printed) == line


def test_a_stalled_run_says_so() -> None:
    watcher = Watcher()
    watcher.line(reading(wall=1.0, contributions=[5]))
    assert "no step in the last second" in watcher.line(reading(wall=2.0, contributions=[5]))


def test_fields_of_a_wrong_type_are_not_known() -> None:
    progress = Progress.from_mapping({"phase": None, "loss": "x", "contributions": "12", "missing": 3})
    assert (progress.loss, progress.contributions, progress.missing) == (None, (), ())


def test_the_end_shows_a_full_bar() -> None:
    assert (
        Watcher()
        .line(reading(phase="finished", global_step=401))
        .startswith("[########################] 100%")
    )


def test_the_steps_of_a_restored_checkpoint_are_no_rate() -> None:
    watcher = Watcher()
    watcher.line(reading(phase="waiting", wall=1.0, contributions=[0, 0]))
    assert "/s" not in watcher.line(reading(wall=2.0, contributions=[5000, 5000]))
