"""The user's program in a run, as `program.json` on the hosts and `settings.json` of the run describe it."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path

from trainer.contract.json_objects import JsonObject
from trainer.contract.json_values import TEXT, mapping_of, tuple_of
from trainer.contract.rules import BOOLEAN, checked, number, setting, to_text

_PATH = checked("an absolute path", to_text, lambda path: path.startswith("/"))


@dataclass(frozen=True)
class RunProgram(JsonObject):
    """The program that the tasks of a run execute, as a dataclass of the fields in `program.json`."""

    release: str = setting(MISSING, TEXT, "Hash of its content, which names its folder on the hosts.")
    file: str = setting(MISSING, _PATH, "The file to run, on the hosts.")
    arguments: tuple[str, ...] = setting(MISSING, tuple_of(TEXT), "`trainer_program_arguments`.")
    flags: bool = setting(MISSING, BOOLEAN, "`trainer_program_flags`.")
    observed: bool = setting(MISSING, BOOLEAN, "`trainer_program_observed`.")
    # Runs of older releases lack the following fields.
    name: str = setting("", TEXT, "Its name in `trainer_programs`, empty for `trainer_program`.")
    environment: Mapping[str, str] = field(
        default_factory=dict, metadata={"rule": mapping_of(TEXT), "meaning": "`trainer_program_environment`."}
    )
    requirements: str = setting("", TEXT, "Key of its requirements, which names the link to its environment.")
    tensorflow1: bool = setting(False, BOOLEAN, "`trainer_program_tensorflow1`.")
    end_deadline_minutes: float = setting(60.0, number(0), "`trainer_program_end_deadline_minutes`.")
    collect: tuple[str, ...] = setting((), tuple_of(TEXT), "`trainer_program_collect`.")

    @property
    def folder(self) -> Path:
        """The program's folder on a host; the folder of its file, if none is named after the release."""
        file = Path(self.file)
        named = (folder for folder in file.parents if self.release and folder.name == self.release)
        return next(named, file.parent)
