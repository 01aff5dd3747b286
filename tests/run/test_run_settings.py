import pytest

from trainer.plan import ClusterPlan, Task
from trainer.run_settings import resumed_settings, run_settings
from trainer.settings import TrainingSettings

PLAN = ClusterPlan(
    "psfleet",
    (Task("ps", 0, "n1", "10.0.0.1", 2222), Task("worker", 0, "n2", "10.0.0.2", 2222)),
)


def settings(**values: object) -> dict[str, object]:
    of_all = TrainingSettings.from_mapping(values)
    return run_settings(PLAN, {"ps0": of_all, "worker0": of_all})


def test_a_ps_knows_nothing_of_what_is_trained() -> None:
    assert settings(model="linear")["tasks"]["ps0"]["flags"] == "--barrier_deadline_seconds=120"  # type: ignore[index]


def test_a_run_goes_on_with_what_it_began_with() -> None:
    begun, today = settings(model="linear", steps=9000, batch_size=10), settings()
    assert resumed_settings(PLAN, begun, today, chosen=()) == begun


def test_what_is_chosen_anew_is_taken() -> None:
    begun, today = settings(model="linear", steps=9000), settings(model="linear", steps=9999, batch_size=7)
    resumed = resumed_settings(PLAN, begun, today, chosen=["steps", "run_id"])
    assert resumed["cluster"]["steps"] == 9999
    assert resumed["cluster"]["batch_size"] == 100
    assert "--steps=9999" in resumed["tasks"]["worker0"]["flags"]


def test_a_run_keeps_its_model() -> None:
    with pytest.raises(ValueError, match="it trains linear, and a run keeps its model"):
        resumed_settings(PLAN, settings(model="linear"), settings(model="mnist_mlp"), chosen=["model"])
