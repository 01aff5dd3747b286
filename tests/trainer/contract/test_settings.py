import pytest

from trainer.contract.settings import SettingsError, TrainingSettings, flags_of


def problems(**values: object) -> dict[str, str]:
    with pytest.raises(SettingsError) as caught:
        TrainingSettings.from_mapping(values)
    return {problem.name: str(problem) for problem in caught.value.problems}


def test_strings_are_taken_as_what_they_mean() -> None:
    given = {"steps": "7", "learning_rate": "0.5", "optimizer": "null", "seed": " 3 "}
    settings = TrainingSettings.from_mapping({**given, "barrier_deadline_seconds": "0"})
    assert (settings.steps, settings.learning_rate, settings.optimizer) == (7, 0.5, None)
    assert (settings.barrier_deadline_seconds, settings.seed) == (0, 3)
    assert TrainingSettings.from_mapping({"learning_rate": ""}).learning_rate is None
    assert TrainingSettings.from_mapping({"learning_rate": "1e-3"}).learning_rate == 0.001


@pytest.mark.parametrize("value", [0, -1, "many", 1.5, "1.5", True, None, "", [1], "0x10"])
def test_a_batch_size_that_is_no_positive_integer_is_refused(value: object) -> None:
    assert problems(batch_size=value) == {"batch_size": f"batch_size is {value!r}; expected an integer >= 1"}


@pytest.mark.parametrize("value", [0, -0.1, "fast", "nan", "inf", float("inf"), True])
def test_a_learning_rate_that_is_no_positive_number_is_refused(value: object) -> None:
    expected = "expected a number > 0, or null for the model's own"
    assert problems(learning_rate=value) == {"learning_rate": f"learning_rate is {value!r}; {expected}"}


def test_every_problem_is_found_at_once() -> None:
    found = problems(steps=0, model="resnet", data_dir="mnist", barrier_deadline_seconds=-1, batch_sise=3)
    assert (
        found["model"]
        == "model is 'resnet'; expected one of linear, mnist_mlp, cnn, placement_demo, partition"
    )
    assert "absolute path" in found["data_dir"]
    assert "did you mean batch_size?" in found["batch_sise"]
    assert len(found) == 5


@pytest.mark.parametrize("path", ["/data/my digits", "data", '/data"', "/data/$HOME", "/data;\n/x"])
def test_a_path_that_would_not_survive_the_command_line_is_refused(path: str) -> None:
    assert "data_dir" in problems(data_dir=path)


def test_flags_give_back_the_settings() -> None:
    settings = TrainingSettings.from_mapping({"model": "linear", "learning_rate": 0.25, "data_dir": "/data"})
    flags = dict(flag.removeprefix("--").split("=", 1) for flag in flags_of(settings.as_dict()))
    assert flags["checkpoint_interval_seconds"] == "60"
    assert "optimizer" not in flags
    assert TrainingSettings.from_mapping(flags) == settings
