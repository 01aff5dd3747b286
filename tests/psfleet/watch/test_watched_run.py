from psfleet.watch.lead_reading import Reading
from psfleet.watch.watched_run import WatchedRun
from tests.psfleet.watch.played_runs import MISSING, PlayedRun, decided_run, progress, steady_run
from trainer.contract.progress import Progress


def test_a_worker_has_its_rate_share_and_host() -> None:
    run = PlayedRun(decided_run(2))
    run.goes_on(20, [30, 20])
    (first, second) = run.view.now.workers
    assert (first.name, first.host, first.rate, first.share) == ("worker0", "node0", 30, 0.6)
    assert (second.contributed, second.trouble, second.runs) == (400, "", False)


def test_the_trouble_of_a_worker_has_a_word() -> None:
    run = steady_run(3)
    run.goes_on(20, [50, 50, 5])
    assert [worker.trouble for worker in run.view.now.workers] == ["", "", "slow"]
    run.goes_on(20, [50, 50, 0])
    assert run.view.now.workers[2].trouble == "stands still"
    run.goes_on(1, [50, 50, 50], phase="waiting", missing=[MISSING])
    assert run.view.now.workers[1].trouble == "waited for"


def test_a_worker_that_was_restarted_keeps_its_count() -> None:
    run = PlayedRun(decided_run(2))
    run.goes_on(1, [5, 5], restarts=[0, 2])
    assert [worker.restarts for worker in run.view.now.workers] == [0, 2]


def test_the_elapsed_time_continues_after_a_restart_of_the_lead() -> None:
    view = WatchedRun(decided_run(1))
    view.add_reading(Reading(Progress("training", elapsed=100.0)), 1000.0)
    view.add_reading(Reading(Progress("starting", elapsed=2.0), restarts=1), 1050.0)
    assert view.now.elapsed == 150.0


def test_the_elapsed_time_counts_from_the_beginning_of_the_run_if_it_is_known() -> None:
    view = WatchedRun(decided_run(1))
    view.began = 400.0
    view.add_reading(Reading(progress(), restarts=2), 1000.0)
    assert view.elapsed(1000.0) == 600.0


def test_an_in_graph_run_is_shown_in_gradients() -> None:
    now = PlayedRun(decided_run(3, replication="in_graph"))
    now.goes_on(1, [1, 1, 1])
    assert now.view.now.unit == "gradients"


def test_workers_of_a_program_without_contributions_are_not_listed() -> None:
    run = PlayedRun(decided_run(2, program={"release": "abc"}))
    run.goes_on(3, [0, 0], contributions=[], last_step=0)
    assert (run.view.now.workers, run.view.now.serving[0].runs) == ((), False)
