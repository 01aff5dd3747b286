"""Dataclasses that are objects in JSON: each field is a `setting`, with its rule and what it means."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from trainer.contract.rules import SettingProblem, as_given, convert_all, converted

_Object = TypeVar("_Object", bound="JsonObject")


@dataclass(frozen=True)
class JsonObject:
    """An object in JSON with the fields of the class."""

    @classmethod
    def from_json(cls: type[_Object], content: object) -> _Object:
        """Return the object that `to_json` described; fields that only newer releases write are ignored.

        Raises ValueError if a field is missing, and SettingsError with every value that its rule refuses.
        """
        if not isinstance(content, Mapping):
            raise ValueError(f"{as_given(content)} is not an object")
        needed = (each.name for each in fields(cls) if each.default is each.default_factory is MISSING)
        if missing := [name for name in needed if name not in content]:
            raise ValueError(f"the field {', '.join(missing)} is missing")
        rules = {each.name: each.metadata["rule"] for each in fields(cls)}
        return cls(**converted({name: content[name] for name in rules if name in content}, rules))

    @classmethod
    def usable(cls: type[_Object], content: object) -> tuple[_Object, dict[str, SettingProblem]]:
        """Return the object made of the valid fields in `content`, and {field: its problem} for the others.

        All fields of the class must have defaults, which stand for invalid or missing fields.
        """
        rules = {each.name: each.metadata["rule"] for each in fields(cls)}
        given = content if isinstance(content, Mapping) else {}
        taken, problems = convert_all({name: given[name] for name in rules if name in given}, rules, str)
        return cls(**taken), {problem.name: problem for problem in problems}

    def to_json(self) -> dict[str, Any]:
        """Return {field: value} of all fields, with lists instead of tuples."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
