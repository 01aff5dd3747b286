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
    """A dataclass whose objects can be written as JSON objects; each field has a rule (see `setting`)."""

    @classmethod
    def from_json(cls: type[_Object], content: object) -> _Object:
        """Return the object of this class that `content`, a result of `to_json`, describes.

        Unknown fields are ignored; missing fields with a default get it. Raises ValueError if `content` is no
        mapping, and its subclass SettingsError with every invalid field and missing field without a default.
        """
        if not isinstance(content, Mapping):
            raise ValueError(f"{as_given(content)} is not an object")
        accepted, problems = convert_fields(content, cls._rules())
        if problems:
            raise SettingsError(problems)
        return cls(**accepted)

    @classmethod
    def as_rule(cls: type[_Object]) -> Rule:
        """Return a rule that accepts what `from_json` accepts, and converts it to an object of this class."""
        rule = object_of(cls._rules())
        return Rule(rule.expected, lambda value: cls(**rule.convert(value)))  # type: ignore[arg-type]

    @classmethod
    def from_valid_fields(cls: type[_Object], content: object) -> tuple[_Object, dict[str, SettingProblem]]:
        """Return (an object of this class, {field: problem} of the invalid fields in `content`).

        The object has the valid fields of `content`, and defaults for the others; so every field of the class
        must have a default. If `content` is no mapping, all fields have their defaults and nothing is
        invalid.
        """
        accepted, problems = convert_fields(content if isinstance(content, Mapping) else {}, cls._rules())
        return cls(**accepted), {re.split(r"[.\[]", problem.name)[0]: problem for problem in problems}

    def to_json(self) -> dict[str, Any]:
        """Return {field: value} of all fields; a tuple becomes a list, other values stay as they are."""
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
