"""The thresholds: one default for the program and the role; values are converted or refused."""

import json
from pathlib import Path

import pytest
import yaml

from psfleet.evidence.__main__ import main
from psfleet.evidence.reading import read_settings, record_settings
from psfleet.evidence.settings import EvidenceSettings
from tests.psfleet.evidence.run_folders import verdict_of
from tests.repository import ROOT


def patterns(**changes: object) -> dict[str, object]:
    """Return two patterns, the second with changes."""
    good = {"tasks": "worker*", "pattern": "a"}
    return {"log_patterns": [good, good | changes]}


def test_the_role_has_the_same_thresholds_with_the_same_defaults() -> None:
    defaults = yaml.safe_load((ROOT / "roles/training_evidence/defaults/main.yml").read_text())
    thresholds = {name.removeprefix("training_evidence_"): value for name, value in defaults.items()}
    for other in ("run_id", "runs_directory", "required"):
        thresholds.pop(other, None)
    assert thresholds == EvidenceSettings().as_dict()


def test_text_from_the_command_line_is_converted_to_numbers() -> None:
    settings = EvidenceSettings.from_mapping(
        {"minimum_share": "0.5", "target_loss": "", "minimum_overlap": 1}
    )
    assert (settings.minimum_share, settings.target_loss, settings.minimum_overlap) == (0.5, None, 1.0)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"minimum_share": 2}, "training_evidence_minimum_share is 2; expected a number from 0 to 1"),
        ({"minimum_share": "high"}, "is 'high'; expected a number from 0 to 1"),
        ({"minimum_exchanged_bytes": -1}, "is -1; expected a number >= 0"),
        ({"target_loss": True}, "is True; expected"),
        ({"loss_patience": "nan"}, "is 'nan'; expected"),
        ({"target_loss": []}, "is []; expected a number >= 0, or null for the model's own"),
        ({"goals": ["accuracy"]}, "goals is ['accuracy']; expected a mapping of metrics"),
        ({"goals": {"accuracy": 0.9}}, "goals.accuracy is 0.9; expected a mapping with a number as minimum"),
        ({"goals": {"accuracy": {}}}, "goals.accuracy is {}; expected a mapping with a number"),
        (
            {"goals": {"accuracy": {"minimum": "high"}}},
            "minimum is 'high'; expected a number, or null",
        ),
        ({"goals": {"accuracy": {1: 2}}}, "goals.accuracy.1 is 2; expected a bound: minimum, maximum"),
        ({"goals": {"accuracy": {"minimun": 1}}}, "minimun is 1; expected a bound (did you mean minimum?)"),
        ({"goals": {"loss": {"minimum": 2, "maximum": 1}}}, "or both, the minimum not above the maximum"),
        ({"log_patterns": "x"}, "log_patterns is 'x'; expected a list of mappings with tasks, pattern,"),
        ({"log_patterns": ["x"]}, "log_patterns[0] is 'x'; expected a mapping with tasks, pattern,"),
        (
            patterns(pattrn="x"),
            "[1].pattrn is 'x'; expected a key of a pattern (did you mean pattern?)",
        ),
        (patterns(pattern=""), "log_patterns[1].pattern is ''; expected a regular expression"),
        (patterns(tasks=3), "log_patterns[1].tasks is 3; expected a glob of tasks such as worker*"),
        (patterns(pattern="("), "log_patterns[1].pattern is '('; expected a regular expression (missing )"),
        (patterns(minimum="x"), "log_patterns[1].minimum is 'x'; expected a number, or null for none"),
        (patterns(minimum=1), "log_patterns[1].pattern is 'a'; expected the number in parentheses"),
        (patterns(pattern="(a)", minimum=2, maximum=1), "[1].minimum is 2.0; expected at most its maximum 1"),
        ({"minimum_shar": 1}, "a setting of the verdict (did you mean training_evidence_minimum_share?)"),
        ({"x": 1, "minimum_share": 9}, "; training_evidence_minimum_share is 9"),
    ],
)
def test_an_invalid_threshold_is_refused_with_its_name(values: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match="training_evidence_") as refusal:
        EvidenceSettings.from_mapping(values, "training_evidence_")
    assert said in str(refusal.value)


def test_goals_and_patterns_survive_a_round_trip() -> None:
    asked = {
        "goals": {"accuracy": {"minimum": 0.9, "maximum": None}},
        "log_patterns": [{"tasks": "ps*", "pattern": "(a)", "minimum": None, "maximum": 2.0}],
    }
    kept = EvidenceSettings.from_mapping(asked).as_dict()
    assert {name: kept[name] for name in asked} == asked
    assert EvidenceSettings.from_mapping(kept).as_dict() == kept
    assert EvidenceSettings.from_mapping({"goals": None, "log_patterns": None}) == EvidenceSettings()


def test_a_run_is_judged_again_by_its_noted_thresholds(run: Path) -> None:
    assert main([str(run)]) == 0
    record_settings(run, EvidenceSettings.from_mapping({"goals": {"weight": {"minimum": 3}}}))
    record_settings(run, EvidenceSettings())  # the noted thresholds are not replaced
    noted = json.loads((run / "settings.json").read_text())
    assert (run / "settings.json").read_text() == json.dumps(noted, indent=4) + "\n"
    assert noted["training"]["model"] == "linear"
    assert read_settings(run).goals["weight"].range.minimum == 3
    assert main([str(run)]) == 1
    written = json.loads((run / "verdict.json").read_text())
    assert written["settings"]["goals"] == {"weight": {"minimum": 3, "maximum": None}}
    assert [check["check"] for check in written["checks"] if check["ok"] is False] == ["model_converged"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            '{"evidence": {"minimum_share": "half"}}',
            "evidence.minimum_share is 'half'; expected a number from 0 to 1",
        ),
        ('{"evidence": "loose"}', "evidence is 'loose'; expected an object or null"),
        ("[", "not JSON (Expecting value: line 1 column 2 (char 1))"),
    ],
)
def test_invalid_settings_are_named_with_their_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, said: str
) -> None:
    (tmp_path / "settings.json").write_text(content)
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"{tmp_path}/settings.json: {said}\n"


@pytest.mark.parametrize("content", ["[]", "["])
def test_settings_that_are_no_object_stay_unchanged(tmp_path: Path, content: str) -> None:
    (tmp_path / "settings.json").write_text(content)
    record_settings(tmp_path, EvidenceSettings())
    assert (tmp_path / "settings.json").read_text() == content


def test_a_folder_that_cannot_be_written_still_gets_its_verdict(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "verdict.json").mkdir()
    assert main([str(run)]) == 0
    assert "verdict.json was not written" in capsys.readouterr().err


def test_thresholds_that_only_older_releases_had_do_not_matter(run: Path) -> None:
    noted = json.loads((run / "settings.json").read_text())
    noted["evidence"] = {"target_accuracy": 0.9, "weight_tolerance": 0.2, "minimum_share": 0.1}
    (run / "settings.json").write_text(json.dumps(noted))
    assert read_settings(run).minimum_share == 0.1
    assert main([str(run)]) == 0


def test_a_stricter_threshold_fails_the_run(run: Path) -> None:
    goals = {"bias": {"minimum": 11}, "weight": {"maximum": 1}}
    for strict in ({"goals": {name: goal}} for name, goal in goals.items()):
        assert verdict_of(run, **strict).exit_code == 1, strict
    assert verdict_of(run, minimum_overlap=1).exit_code == 1
    assert verdict_of(run, minimum_loss_reduction=1, target_loss=0).exit_code == 1
    assert verdict_of(run, minimum_loss_reduction=1, target_loss=1).exit_code == 0
