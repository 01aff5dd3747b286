"""Dataclasses that are objects in JSON: each field is a `setting`, with its rule and what it means."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, TypeVar

from trainer.contract.json_values import object_of
from trainer.contract.rules import Rule, SettingProblem, SettingsError, as_given, convert_fields

_Object = TypeVar("_Object", bound="JsonObject")


@dataclass(frozen=True)
class JsonObject:
    """An object in JSON with the fields of the class."""

    @classmethod
    def from_json(cls: type[_Object], content: object) -> _Object:
        """Return the object that `to_json` described; unknown fields, as of newer releases, are ignored.

        Raises ValueError if it is no object, and SettingsError with every missing or invalid field.
        """
        if not isinstance(content, Mapping):
            raise ValueError(f"{as_given(content)} is not an object")
        accepted, problems = convert_fields(content, cls._rules())
        if problems:
            raise SettingsError(problems)
        return cls(**accepted)

    @classmethod
    def as_rule(cls: type[_Object]) -> Rule:
        """Return the rule for such an object as a part of another."""
        rule = object_of(cls._rules())
        return Rule(rule.expected, lambda value: cls(**rule.convert(value)))  # type: ignore[arg-type]

    @classmethod
    def from_valid_fields(cls: type[_Object], content: object) -> tuple[_Object, dict[str, SettingProblem]]:
        """Return (the object made of the valid fields in `content`, {field: problem} of the invalid fields).

        All fields of the class must have defaults, which stand for invalid or missing fields. If `content` is
        no object, all fields are missing.
        """
        accepted, problems = convert_fields(content if isinstance(content, Mapping) else {}, cls._rules())
        return cls(**accepted), {re.split(r"[.\[]", problem.name)[0]: problem for problem in problems}

    def to_json(self) -> dict[str, Any]:
        """Return {field: value} of all fields, with lists instead of tuples."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def _rules(cls) -> dict[str, Rule]:
        return {
            each.name: replace(
                each.metadata["rule"], optional=not each.default is each.default_factory is MISSING
            )
            for each in fields(cls)
        }
