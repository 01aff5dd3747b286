"""The file `settings.json` in a run's folder: what the run was asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psfleet.inventory.success_policy import ALL_WORKERS, POLICY_RULE
from trainer.contract.json_objects import JsonObject
from trainer.contract.json_values import OBJECT, TEXT, mapping_of, nullable
from trainer.contract.model_card import Card
from trainer.contract.rules import Rule, setting


def _to_card(value: object) -> Mapping[str, object]:
    return _CARD.convert(value).to_json()  # type: ignore[attr-defined,no-any-return]


_CARD = Card.as_rule()


def _object(meaning: str, rule: Rule = OBJECT) -> Any:  # noqa: ANN401 - as dataclasses.field
    return field(default_factory=dict, metadata={"rule": rule, "meaning": meaning})


@dataclass(frozen=True)
class RunSettings(JsonObject):
    """What a run was asked for. A resumed run keeps it, except for what -e sets anew."""

    training: Mapping[str, object] = _object("The chief's training settings, by name.")
    tasks: Mapping[str, Mapping[str, object]] = _object(
        'The training settings of each task of the run: {"worker0": {"model": "linear", ..}}.',
        mapping_of(OBJECT),
    )
    program: Mapping[str, Any] | None = setting(
        None, nullable(OBJECT), "[The program](#the-program-of-a-run), null for a model of the trainer."
    )
    card: Mapping[str, Any] | None = setting(
        None,
        nullable(Rule("a model's card", _to_card)),
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
        TEXT,
        'Who began or resumed the run from here: "ana@desk, 2026-11-25 09:12 UTC". Absent for others.',
    )
    evidence: Mapping[str, object] | None = setting(
        None, nullable(OBJECT), "The thresholds of the verdict by which it was first judged. Absent before."
    )

    def to_json(self) -> dict[str, Any]:
        """Return {field: value}, without the fields that are None; `program` is in it even if it is None."""
        values = super().to_json()
        return {name: value for name, value in values.items() if name == "program" or value is not None}
