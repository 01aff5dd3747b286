from dataclasses import replace
from itertools import product

import pytest
from rich.cells import cell_len
from rich.text import Text

from psfleet.watch.console import PlaybookConsole
from psfleet.watch.live_block import Snapshot, block_rows, log_line
from tests.few import few
from tests.psfleet.watch.played_runs import MISSING, PlayedRun, decided_run, progress, steady_run, unit

TALL = 24
WAITED_FOR = "worker1 at 10.0.0.2:2222 (connection refused)"


def shown(
    view: Snapshot, columns: int = 77, rows: int = TALL, encoding: str = "ascii", *, verbose: bool = False
) -> list[str]:
    console = PlaybookConsole(columns, encoding)
    return console.lines(*block_rows(view, console, rows, verbose=verbose))


def trained(workers: int = 3, rates: list[float] | None = None, last_step: int = 6000) -> Snapshot:
    run = PlayedRun(decided_run(workers, ps=2), last_step)
    run.goes_on(39, rates or [50.0] * workers, loss=0.25)
    of_node0 = "\n".join([unit("ps", 0), unit("ps", 1), unit("worker", 0)])
    assert run.view.add_units("node0", of_node0, 39.0) == []
    run.goes_on(1, rates or [50.0] * workers, loss=0.25)
    return run.view.now


def test_a_run_with_few_tasks_shows_each_of_them() -> None:
    assert shown(trained(rates=[60, 30, 10])) == [
        "###################################------------------    66%   step 4000/6000",
        "100 steps/s   loss 0.2500 level   0:20 left   0:39 elapsed",
        "worker0 60/s 60%   worker1 30/s 30%   worker2 10/s 10% (slow)",
        "ps0, ps1 run",
    ]


def test_the_last_evaluation_is_shown_beside_the_checkpoint() -> None:
    view = trained()
    view = replace(view, progress=replace(view.progress, evaluation="auc 0.77 at step 3500"), saved_step=3500)
    assert shown(view)[-1] == "ps0, ps1 run   saved at step 3500   evaluated: auc 0.77 at step 3500"
    assert "evaluated: auc 0.77 at step 3500" in log_line(view)


def test_a_terminal_of_utf_8_shows_the_curve_of_the_loss() -> None:
    run = PlayedRun(decided_run(2))
    for second in range(40):
        run.goes_on(1, [50, 50], loss=0.9**second)
    rows = shown(run.view.now, encoding="utf-8")
    assert "loss 0.0164 █▇▇▆▆▅▄▄▃▂▂▁ falling" in rows[1]
    assert "━" in rows[0]
    assert "loss 0.0164 falling" in shown(run.view.now)[1]


@pytest.mark.parametrize(
    ("workers", "encoding", "columns"),
    few(
        product([3, 300], ["utf-8", "ascii"], [10, 39, 40, 79, 200]),
        *product([3], ["utf-8", "ascii"], [10, 39, 40, 79, 200]),
        (300, "utf-8", 39),
        (300, "ascii", 200),
    ),
)
def test_no_row_is_wider_than_the_terminal(columns: int, encoding: str, workers: int) -> None:
    now = replace(trained(workers, last_step=10**7).progress, last_line="模型 " * 60, missing=("x " * 90,))
    view = replace(trained(workers), progress=now)
    for verbose in (False, True):
        rows = shown(view, columns, encoding=encoding, verbose=verbose)
        assert len(rows) <= TALL
        assert all(cell_len(row) <= columns for row in rows)


def test_forty_columns_show_the_same_words_as_eighty() -> None:
    wide, narrow = (" ".join(shown(trained(), columns)).split() for columns in (77, 37))
    assert [word for word in narrow if "#" not in word] == [word for word in wide if "#" not in word]


def test_the_bar_keeps_its_width_and_is_omitted_on_a_narrow_terminal() -> None:
    rows = [shown(Snapshot(progress(global_step=step, last_step=6000), 1.0))[0] for step in (9, 5990)]
    assert len({row.index("step") for row in rows}) == 1
    assert shown(trained(), 28)[0] == "100%   step 6000/6000"


def test_a_low_terminal_shows_only_the_first_rows() -> None:
    (bar, figures) = shown(trained(), rows=2)
    assert "step" in bar
    assert "steps/s" in figures


def test_many_workers_are_summarised_and_those_that_differ_are_named() -> None:
    rates = [13.0] * 300
    rates[7], rates[200] = 2.0, 40.0
    rows = shown(trained(300, rates, last_step=10**6))
    assert rows[2] == "300 workers, 2/s to 40/s each   median 13/s   worker7 2/s 0.1% (slow)"
    assert rows[3] == "worker200 40/s 1.0%"


def test_many_differing_workers_are_abbreviated() -> None:
    view = trained(300, [13.0] * 200 + [1.0] * 100, last_step=10**6)
    rows = shown(view)
    assert "and 94 more that differ" in " ".join(rows)
    assert len(rows) < 8


def test_each_task_has_its_row_in_verbose_output() -> None:
    rows = shown(trained(), 98, verbose=True)
    assert rows[2] == "worker0 on node0  50 steps/s  33%  2000 steps  10.0.0.0:2322"
    assert rows[5].startswith("ps0 on node0  runs  10.0.0.0:2222")
    # Tasks that do not fit are summarised.
    assert shown(trained(300), 98, verbose=True)[2].startswith("300 workers, 50/s to 50/s each")


def test_only_a_complete_run_shows_100_percent() -> None:
    view = Snapshot(progress(global_step=399, last_step=400, phase="ending"), 5.0)
    assert shown(view)[0].endswith(" 99%   step 399/400")
    done = Snapshot(progress(global_step=402, last_step=400, phase="finished"), 5.0)
    assert shown(done)[0].endswith("#   100%   step 402/400")


def test_a_line_contains_the_whole_state() -> None:
    assert log_line(trained(rates=[60, 30, 10])) == (
        "0:39  66%  step 4000/6000  100 steps/s  loss 0.2500 level  0:20 left  "
        "worker0 60/s 60%  worker1 30/s 30%  worker2 10/s 10% (slow)  ps0, ps1 run"
    )


def test_missing_tasks_are_named_with_their_reasons() -> None:
    view = Snapshot(progress(phase="waiting", missing=[MISSING]), 5.0)
    assert log_line(view).endswith("waiting for worker1 at 10.0.0.2:2222 (connection refused)")
    view = Snapshot(progress(phase="waiting", global_step=200, missing=[MISSING]), 5.0)
    assert "50%  step 200/400  waiting for worker1" in log_line(view)
    nine = [{"task": f"worker{index}", "address": "", "reason": "?"} for index in range(9)]
    waiting = log_line(Snapshot(progress(phase="waiting", missing=nine), 5.0))
    assert waiting.endswith("worker0 (?); worker1 (?); worker2 (?); worker3 (?) and 5 more")


def test_missing_tasks_are_wrapped_between_words_in_a_few_rows() -> None:
    view = Snapshot(progress(phase="waiting", global_step=200, missing=[MISSING]), 5.0)
    assert shown(view, 37)[2:] == ["waiting for worker1 at 10.0.0.2:2222", "(connection refused)"]
    nine = [{"task": f"worker{index}", "address": "10.0.0.2", "reason": "no answer"} for index in range(9)]
    rows = shown(Snapshot(progress(phase="waiting", global_step=2, missing=nine), 5.0), 37)
    assert (len(rows), rows[-1][-1]) == (5, "~")


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"phase": "finished"}, "0%  step 0/400  finished"),
        (
            {"phase": "finished", "reason": "accuracy > 0.9 is met"},
            "0%  step 0/400  finished: accuracy > 0.9 is met",
        ),
        ({"phase": "ending", "missing": [MISSING]}, f"0%  step 0/400  ending: waiting for {WAITED_FOR}"),
        ({"phase": "failed", "reason": "loss is nan"}, "0%  step 0/400  failed: loss is nan"),
        # Texts of hosts are made printable.
        ({"phase": "failed", "reason": "\x1b[2Jgone\r\n"}, "0%  step 0/400  failed:  [2Jgone"),
        # A program may tell its steps, or the last of them.
        ({"last_step": 0, "global_step": 7, "loss": 0.5}, "step 7  loss 0.5000"),
        ({"last_step": 10, "global_step": 7}, "70%  step 7/10"),
    ],
)
def test_a_line_shows_the_phase_and_reason_of_a_run(now: dict[str, object], said: str) -> None:
    assert log_line(Snapshot(progress(**now), 5.0)) == f"0:05  {said}"


def test_a_program_without_steps_shows_the_time_and_its_last_line() -> None:
    view = Snapshot(replace(progress(last_step=0), last_line="epoch 3: 0.91"), 3725.0)
    assert log_line(view) == "1:02:05  | epoch 3: 0.91"
    assert shown(view) == ["1:02:05 elapsed", "| epoch 3: 0.91"]


def test_a_program_without_output_is_shown_as_running() -> None:
    assert log_line(Snapshot(progress(last_step=0), 6.0)).startswith("0:06  running; it has printed nothing")
    assert log_line(Snapshot(progress(last_step=0, global_step=7), 6.0)) == "0:06  step 7"


def test_a_standstill_replaces_the_rates() -> None:
    run = steady_run(2)
    run.goes_on(12, [0, 0])
    text = log_line(run.view.now)
    assert "no step for 0:12" in text
    assert " left" not in text


def test_slow_rates_are_shown_per_minute() -> None:
    run = PlayedRun(decided_run(2))
    run.goes_on(400, [0.5, 0.05])
    assert "worker0 0.51/s 91%  worker1 3.4/min 9.1%" in log_line(run.view.now)


def test_a_terminal_without_utf_8_gets_only_ascii() -> None:
    view = Snapshot(progress(phase="failed", reason="Gerät fehlt …"), 5.0)
    assert all(row.isascii() for row in shown(view))
    assert "Gerät" in " ".join(shown(view, encoding="utf-8"))


def test_control_characters_are_drawn_escaped() -> None:
    (line_of,) = PlaybookConsole().lines(Text.assemble("x\x1b[2J", ("\x9b\u202e", "red")))
    assert line_of.replace("\x1b[31m", "").replace("\x1b[0m", "") == r"x\x1b[2J\x9b\u202e"


def test_the_shown_state_does_not_change_if_only_time_has_passed() -> None:
    run = PlayedRun(decided_run(2))
    run.goes_on(12, [50, 50])
    before = run.view.now
    run.goes_on(12, [0, 0])
    assert run.view.now.elapsed > before.elapsed
    assert run.view.now.shown_state == before.shown_state
    run.goes_on(1, [0, 0], missing=[MISSING])
    assert run.view.now.shown_state != before.shown_state
    run.goes_on(1, [1, 0])
    assert run.view.now.shown_state != before.shown_state


def test_no_standstill_is_reported_after_the_last_step() -> None:
    run = PlayedRun(decided_run(2), last_step=1000)
    notes = run.goes_on(10, [50, 50]) + run.goes_on(200, [0, 0])
    assert notes == []
    assert "no step for" not in log_line(run.view.now)
