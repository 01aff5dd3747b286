"""The file `settings.json` in a run's folder: what the run was asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psfleet.inventory.success_policy import ALL_WORKERS, POLICY_RULE
from trainer.contract.json_objects import JsonObject
from trainer.contract.model_card import Card
from trainer.contract.rules import Rule, setting, to_text


def _to_object(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(value)
    return value


def _to_objects(value: object) -> Mapping[str, Mapping[str, object]]:
    return {str(name): _to_object(each) for name, each in _to_object(value).items()}


def _to_object_or_null(value: object) -> Mapping[str, object] | None:
    return None if value is None else _to_object(value)


def _to_card_or_null(value: object) -> Mapping[str, object] | None:
    return None if value is None else Card.from_json(value).to_json()


_OBJECT, _OBJECT_OR_NULL = Rule("an object", _to_object), Rule("an object or null", _to_object_or_null)


def _object(meaning: str, rule: Rule = _OBJECT) -> Any:  # noqa: ANN401 - as dataclasses.field
    return field(default_factory=dict, metadata={"rule": rule, "meaning": meaning})


@dataclass(frozen=True)
class RunSettings(JsonObject):
    """What a run was asked for. A resumed run keeps it, except for what -e sets anew."""

    training: Mapping[str, object] = _object("The chief's training settings, by name.")
    tasks: Mapping[str, Mapping[str, object]] = _object(
        'The training settings of each task of the run: {"worker0": {"model": "linear", ..}}.',
        Rule("an object of objects", _to_objects),
    )
    program: Mapping[str, Any] | None = setting(
        None, _OBJECT_OR_NULL, "[The program](#the-program-of-a-run), null for a model of the trainer."
    )
    card: Mapping[str, Any] | None = setting(
        None,
        Rule("a model's card or null", _to_card_or_null),
        "The [card](models.md#the-card) of the user's own model, by which the run is judged. Absent for "
        "other runs.",
    )
    success: str | int = setting(
        ALL_WORKERS,
        POLICY_RULE,
        "Which workers must have finished: `all_workers`, `chief`, or their number (`training_run_success`).",
    )
    begun: str | None = setting(
        None,
        Rule("a text", to_text),
        'Who began or resumed the run from here: "ana@desk, 2026-11-25 09:12 UTC". Absent for others.',
    )
    evidence: Mapping[str, object] | None = setting(
        None, _OBJECT_OR_NULL, "The thresholds of the verdict by which it was first judged. Absent before."
    )

    def to_json(self) -> dict[str, Any]:
        """Return {field: value}; of the fields that are None, it has only `program`."""
        values = super().to_json()
        return {name: value for name, value in values.items() if name == "program" or value is not None}
