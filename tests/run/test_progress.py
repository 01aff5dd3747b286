from trainer.progress import Progress, Watcher


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
