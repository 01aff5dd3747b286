"""The user's program in a run, as `program.json` on the hosts and `settings.json` of the run describe it."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field

from trainer.contract.json_objects import JsonObject
from trainer.contract.rules import BOOLEAN, Rule, checked, number, setting, to_text


def _to_texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(value)
    return tuple(map(to_text, value))


def _to_named_texts(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(value)
    return {to_text(name): to_text(text) for name, text in value.items()}


_TEXT, _TEXTS = Rule("a text", to_text), Rule("a list of texts", _to_texts)
_NAMED_TEXTS = Rule("names and texts", _to_named_texts)
_PATH = checked("an absolute path", to_text, lambda path: path.startswith("/"))


@dataclass(frozen=True)
class RunProgram(JsonObject):
    """The program that the tasks of a run execute."""

    release: str = setting(MISSING, _TEXT, "Hash of its content, which names its folder on the hosts.")
    file: str = setting(MISSING, _PATH, "The file to run, on the hosts.")
    arguments: tuple[str, ...] = setting(MISSING, _TEXTS, "`trainer_program_arguments`.")
    flags: bool = setting(MISSING, BOOLEAN, "`trainer_program_flags`.")
    observed: bool = setting(MISSING, BOOLEAN, "`trainer_program_observed`.")
    # Runs of older releases lack the following fields.
    name: str = setting("", _TEXT, "Its name in `trainer_programs`, empty for `trainer_program`.")
    environment: Mapping[str, str] = field(
        default_factory=dict, metadata={"rule": _NAMED_TEXTS, "meaning": "`trainer_program_environment`."}
    )
    tensorflow1: bool = setting(False, BOOLEAN, "`trainer_program_tensorflow1`.")
    end_deadline_minutes: float = setting(60.0, number(0), "`trainer_program_end_deadline_minutes`.")
    collect: tuple[str, ...] = setting((), _TEXTS, "`trainer_program_collect`.")
