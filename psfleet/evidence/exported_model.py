"""Reads the export of a run's model (docs/contracts.md), and trusts nothing in it: a host made it."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psfleet.evidence.answer import listed
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.run_manifest import FILE_ENTRIES, Manifest, is_plain
from psfleet.evidence.untrusted_files import read_json
from trainer.contract.export import CARD, FILES, SIGNATURE, VERSION
from trainer.contract.json_values import (
    list_of,
    mapping_of,
    matching,
    nullable,
    object_of,
    real,
    whole,
)
from trainer.contract.rules import Rule, checked, convert_fields, optional
from trainer.host.task_traces import RUN_ID

# The controller writes this file beside the files that came from the host.
README = "README.md"
_MOST_OF_A_CARD = 4_000_000
_NEEDED = {"saved_model.pb", "variables/variables.index"}
_FINGERPRINT = matching("a fingerprint", re.compile(r"[0-9a-f]{16}"))
_NAME, _MOST_NAMES = re.compile(r"[A-Za-z0-9_./:@ -]{1,200}"), 1000
_COUNT, _NUMBER = whole(0, 2**53), real(-1e300, 1e300)


def _named(rule: Rule, least: int) -> Rule:
    values = mapping_of(rule, _MOST_NAMES)
    return checked(
        values.expected, values.convert, lambda of: len(of) >= least and all(map(_NAME.fullmatch, of))
    )


_TENSOR = {
    "dtype": matching("a type of TensorFlow", re.compile(r"[a-z0-9_]{1,20}")),
    "shape": optional(nullable(list_of(nullable(_COUNT), _MOST_NAMES))),
}
_TENSORS = _named(object_of(_TENSOR), least=1)
_CARD = {
    "run_id": matching("the id of a run", RUN_ID),
    "model": matching("a model", re.compile(r"[A-Za-z0-9_.-]{1,100}")),
    "release": matching("a hash", re.compile(r"[0-9a-f]{12}"), or_empty=True),
    "checkpoint": matching("a checkpoint", re.compile(r"[A-Za-z0-9_.=,+@/-]{1,500}")),
    "fingerprint": _FINGERPRINT,
    "variables_fingerprint": _FINGERPRINT,
    "tensorflow": matching("a version", re.compile(r"[0-9A-Za-z.+-]{1,40}")),
    "global_step": _COUNT,
    "examples": _COUNT,
    "metrics": _named(nullable(_NUMBER), least=0),
    "inputs": _TENSORS,
    "outputs": _TENSORS,
    "checked": object_of({"examples": _NUMBER, "bound": _NUMBER, "largest_difference": _NUMBER}),
    "files": FILE_ENTRIES,
}
Shape = list[int | None] | None


class InvalidExportError(ValueError):
    """An export that is damaged, incomplete or invalid; the message says how."""


@dataclass(frozen=True)
class ModelExport:
    """A complete export in `folder`.

    `card` is the content of its card, export.json, in which every field has the right type.
    """

    folder: Path
    card: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> "ModelExport":
        """Return the export in a folder, after comparing its files with their hashes on the card.

        Raises InvalidExportError if it is damaged, incomplete or invalid, if it has files that its card
        lacks, or if the folder is missing or a link. Raises OSError if a file cannot be read.
        """
        if folder.is_symlink() or not folder.is_dir():
            raise InvalidExportError("it is no folder")
        try:
            card = read_json(folder / CARD, _MOST_OF_A_CARD)
        except (OSError, ValueError) as error:
            raise InvalidExportError(f"{CARD}: {getattr(error, 'strerror', None) or error}") from error
        if not isinstance(card, dict) or card.get("version") != VERSION:
            raise InvalidExportError(f"{CARD} is not an object of version {VERSION}")
        _, invalid = convert_fields(card, _CARD)
        if invalid:
            raise InvalidExportError(f"{CARD}: {listed(map(str, invalid))}")
        if problems := [*_problems_of_files(folder, card["files"])]:
            raise InvalidExportError(listed(problems))
        return cls(folder, card)

    @property
    def bytes(self) -> int:
        """The size of all files that the card lists, in bytes; the card and README.md are not among them."""
        return sum(entry["bytes"] for entry in self.card["files"].values())

    def loading_line(self, place: str) -> str:
        """Return Python code that loads the model from `place`, as a function of the inputs by name.

        Example: loading_line("m") -> "tf.saved_model.load('m').signatures['serving_default']"
        """
        return f"tf.saved_model.load({place!r}).signatures[{SIGNATURE!r}]"

    def differences(self, expected: Mapping[str, Collection[Any]]) -> list[str]:
        """Return a sentence for each field of the card whose value is not an expected one; [] if all are.

        `expected` is {field of the card: values that fit the run}. Other fields are not compared.
        """
        return [
            f"its {name.replace('_', ' ')} is {self.card[name]}, that of the run is {wanted}"
            for name, values in expected.items()
            for wanted in [" or ".join(map(str, values))]
            if self.card[name] not in values
        ]

    def other_names(self, requested: Mapping[str, Collection[str]]) -> list[str]:
        """Return a sentence for `inputs` and one for `outputs` if their names are not the `requested` names.

        `requested` is {"inputs": names, "outputs": names}; the order does not matter. Empty names permit any
        names. Return [] if all names fit.
        """
        return [
            f"its {what} are {', '.join(self.card[what])}, asked for are {', '.join(names)}"
            for what, names in requested.items()
            if names and {*self.card[what]} != {*names}
        ]


def last_checkpoint(run: Run) -> tuple[int, str] | None:
    """Return (global step, fingerprint) of the last checkpoint that the chief recorded; None without one."""
    saved = run.chief.of("checkpointed")[-1:]
    return (saved[0].integer("global_step"), saved[0].text("fingerprint")) if saved else None


def _problems_of_files(folder: Path, files: Mapping[str, Any]) -> Iterator[str]:
    # rglob follows no link to a folder.
    paths = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    there = {path.relative_to(folder).as_posix() for path in paths} - {README, CARD}
    yield from (f"{name!r} is not a name of its files" for name in files if not FILES.fullmatch(name))
    yield from (f"{name} is missing" for name in sorted((files.keys() | _NEEDED) - there))
    yield from (f"{name!r} is not in {CARD}" for name in sorted(there - files.keys()))
    manifest = Manifest("", files)
    for name in sorted(there & files.keys()):
        if not is_plain(folder / name) or not manifest.holds(folder, name):
            yield f"{name} has another content than its card says"
