from dataclasses import replace

import pytest

from tests.run.watched_runs import MISSING, WatchedRun, decided_run, progress
from trainer.progress_block import ASCII, UNICODE, Glyphs, Row, View, block, columns_of, line

TALL = 24


def shown(rows: list[Row]) -> list[str]:
    return ["  " + "   ".join(piece.text for piece in row) for row in rows]


def trained(workers: int = 3, rates: list[float] | None = None, last_step: int = 6000) -> View:
    run = WatchedRun(decided_run(workers, ps=2), last_step)
    run.goes_on(39, rates or [50.0] * workers, loss=0.25)
    run.view.probed({}, 39.0)
    run.goes_on(1, rates or [50.0] * workers, loss=0.25)
    return run.view.now


def test_a_run_with_few_tasks_shows_each_of_them() -> None:
    assert shown(block(trained(rates=[60, 30, 10]), 79, TALL, ASCII)) == [
        "  [##################################-----------------]    66%   step 4000/6000",
        "  100 steps/s   loss 0.2500 level   0:20 left   0:39 elapsed",
        "  worker0 60/s 60%   worker1 30/s 30%   worker2 10/s 10% (slow)",
        "  ps0, ps1 answer",
    ]


def test_a_terminal_of_utf_8_shows_the_curve_of_the_loss() -> None:
    run = WatchedRun(decided_run(2))
    for second in range(40):
        run.goes_on(1, [50, 50], loss=0.9**second)
    rows = shown(block(run.view.now, 79, TALL, UNICODE))
    assert "loss 0.0164 █▇▇▆▆▅▄▄▃▂▂▁ falling" in rows[1]
    assert "━" in rows[0]
    assert "loss 0.0164 falling" in shown(block(run.view.now, 79, TALL, ASCII))[1]


@pytest.mark.parametrize("columns", [10, 20, 39, 40, 60, 79, 200])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize("workers", [3, 300])
def test_no_row_is_wider_than_the_terminal(columns: int, glyphs: Glyphs, workers: int) -> None:
    now = replace(trained(workers, last_step=10**7).progress, last_line="模型 " * 60, missing=("x " * 90,))
    view = replace(trained(workers), progress=now)
    for verbose in (False, True):
        rows = block(view, columns, TALL, glyphs, verbose=verbose)
        assert len(rows) <= TALL
        assert all(columns_of(row) <= columns for row in shown(rows))


def test_forty_columns_hold_all_that_eighty_do() -> None:
    wide, narrow = (" ".join(shown(block(trained(), columns, TALL, ASCII))).split() for columns in (79, 39))
    assert [word for word in narrow if "#" not in word] == [word for word in wide if "#" not in word]


def test_a_low_terminal_shows_what_comes_first() -> None:
    (bar, figures) = shown(block(trained(), 79, 2, ASCII))
    assert "step" in bar
    assert "steps/s" in figures


def test_of_many_workers_those_that_differ_are_named() -> None:
    rates = [13.0] * 300
    rates[7], rates[200] = 2.0, 40.0
    rows = shown(block(trained(300, rates, last_step=10**6), 79, TALL, ASCII))
    assert rows[2] == "  300 workers, 2/s to 40/s each   median 13/s   worker7 2/s 0.1% (slow)"
    assert rows[3] == "  worker200 40/s 1.0%"


def test_many_that_differ_do_not_fill_the_screen() -> None:
    view = trained(300, [13.0] * 200 + [1.0] * 100, last_step=10**6)
    rows = shown(block(view, 79, TALL, ASCII))
    assert "and 94 more that differ" in " ".join(rows)
    assert len(rows) < 8


def test_each_task_has_its_row_where_more_is_asked_for() -> None:
    rows = shown(block(trained(), 100, TALL, ASCII, verbose=True))
    assert rows[2] == "  worker0 on node0  50 steps/s  33%  2000 steps  answered 1 s ago  10.0.0.0:2322"
    assert rows[5].startswith("  ps0 on node0  answered 1 s ago")


def test_only_what_is_complete_is_a_hundred_percent() -> None:
    view = View(progress(global_step=399, last_step=400, phase="ending"), 5.0)
    assert shown(block(view, 79, TALL, ASCII))[0].endswith(" 99%   step 399/400")
    done = View(progress(global_step=402, last_step=400, phase="finished"), 5.0)
    assert shown(block(done, 79, TALL, ASCII))[0].endswith("#]   100%   step 402/400")


def test_a_line_stands_for_itself() -> None:
    assert line(trained(rates=[60, 30, 10])) == (
        "0:39  66%  step 4000/6000  100 steps/s  loss 0.2500 level  0:20 left  "
        "worker0 60/s 60%  worker1 30/s 30%  worker2 10/s 10% (slow)  ps0, ps1 answer"
    )


def test_who_is_waited_for_is_named_with_the_reason() -> None:
    view = View(progress(phase="waiting", missing=[MISSING]), 5.0)
    assert line(view).endswith("waiting for worker1 at 10.0.0.2:2222 (connection refused)")
    view = View(progress(phase="waiting", global_step=200, missing=[MISSING]), 5.0)
    assert "50%  step 200/400  waiting for worker1" in line(view)
    nine = [{"task": f"worker{index}", "address": "", "reason": "?"} for index in range(9)]
    waiting = line(View(progress(phase="waiting", missing=nine), 5.0))
    assert waiting.endswith("worker0 (?); worker1 (?); worker2 (?); worker3 (?) and 5 more")


def test_who_is_waited_for_is_wrapped_by_words_in_a_few_rows() -> None:
    view = View(progress(phase="waiting", global_step=200, missing=[MISSING]), 5.0)
    assert shown(block(view, 39, TALL, ASCII))[2:] == [
        "  waiting for worker1 at 10.0.0.2:2222",
        "  (connection refused)",
    ]
    nine = [{"task": f"worker{index}", "address": "10.0.0.2", "reason": "no answer"} for index in range(9)]
    rows = shown(block(View(progress(phase="waiting", global_step=2, missing=nine), 5.0), 39, TALL, ASCII))
    assert (len(rows), rows[-1][-3:]) == (5, "...")


def test_a_run_that_ends_says_how_and_for_whom_it_waits() -> None:
    ending = View(progress(phase="ending", missing=[MISSING]), 5.0)
    assert line(ending).endswith("ending: waiting for worker1 at 10.0.0.2:2222 (connection refused)")
    failed = View(progress(phase="failed", reason="loss is nan"), 5.0)
    assert line(failed).endswith("failed: loss is nan")


def test_a_program_without_steps_shows_the_time_and_what_it_printed_last() -> None:
    view = View(replace(progress(last_step=0), last_line="epoch 3: 0.91"), 3725.0)
    assert line(view) == "1:02:05  | epoch 3: 0.91"
    assert shown(block(view, 79, TALL, ASCII)) == ["  1:02:05 elapsed", "  | epoch 3: 0.91"]


def test_a_program_that_tells_its_steps_shows_them() -> None:
    assert line(View(progress(last_step=0, global_step=7, loss=0.5), 5.0)) == "0:05  step 7  loss 0.5000"
    assert "step 7/10" in line(View(progress(last_step=10, global_step=7), 5.0))


def test_a_step_that_stands_takes_the_place_of_rates() -> None:
    run = WatchedRun(decided_run(2))
    run.goes_on(20, [50, 50])
    run.goes_on(12, [0, 0])
    text = line(run.view.now)
    assert "no step for 0:12" in text
    assert " left" not in text


def test_slow_rates_are_told_by_the_minute() -> None:
    run = WatchedRun(decided_run(2))
    run.goes_on(400, [0.5, 0.05])
    assert "worker0 0.51/s 91%  worker1 3.4/min 9.1%" in line(run.view.now)


def test_what_hosts_say_does_not_steer_a_terminal() -> None:
    text = line(View(progress(phase="failed", reason="\x1b[2Jgone\r\n"), 5.0))
    assert text.isprintable()


def test_a_terminal_without_utf_8_gets_ascii_alone() -> None:
    view = View(progress(phase="failed", reason="Gerät fehlt …"), 5.0)
    assert all(row.isascii() for row in shown(block(view, 79, TALL, ASCII)))
    assert "Gerät" in " ".join(shown(block(view, 79, TALL, UNICODE)))
