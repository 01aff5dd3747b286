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
        """Return the object that `to_json` described; unknown fields, as of newer releases, are ignored.

        Raises ValueError if a field without a default is missing, and SettingsError with every value that its
        rule refuses.
        """
        if not isinstance(content, Mapping):
            raise ValueError(f"{as_given(content)} is not an object")
        needed = (each.name for each in fields(cls) if each.default is each.default_factory is MISSING)
        if missing := [name for name in needed if name not in content]:
            raise ValueError(f"the field {', '.join(missing)} is missing")
        rules = {each.name: each.metadata["rule"] for each in fields(cls)}
        return cls(**converted({name: content[name] for name in rules if name in content}, rules))

    @classmethod
    def from_valid_fields(cls: type[_Object], content: object) -> tuple[_Object, dict[str, SettingProblem]]:
        """Return (the object made of the valid fields in `content`, {field: problem} of the invalid fields).

        All fields of the class must have defaults, which stand for invalid or missing fields. If `content` is
        no object, all fields are missing.
        """
        rules = {each.name: each.metadata["rule"] for each in fields(cls)}
        values = content if isinstance(content, Mapping) else {}
        accepted, problems = convert_all({name: values[name] for name in rules if name in values}, rules, str)
        return cls(**accepted), {problem.name: problem for problem in problems}

    def to_json(self) -> dict[str, Any]:
        """Return {field: value} of all fields, with lists instead of tuples."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
