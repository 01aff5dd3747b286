"""Model partition: a verdict names the workers of whom the model learned nothing."""

from pathlib import Path

from tests.psfleet.evidence.run_folders import edit, find_in_the_model, tell_settings, verdict_of


def test_the_workers_whose_part_was_not_found_are_named(run: Path) -> None:
    tell_settings(run, model="partition")
    for task in ("worker0", "worker1"):
        edit(run, task, "started", settings={"model": "partition"})
    errors = {"error_of_worker0": 0.001, "error_of_worker1": 2.5}
    find_in_the_model(run, metrics={"largest_error": 2.5, **errors, "loss": 6.3})
    converged = {check.check: check for check in verdict_of(run).checks}["model_converged"]
    assert converged.ok is False
    assert converged.detail.startswith(
        "largest_error is 2.5000, expected at most 0.05: what only worker1 knew was not found"
    )
    find_in_the_model(run, metrics={"largest_error": 0.001, **errors})
    assert {check.check: check for check in verdict_of(run).checks}["model_converged"].ok
