"""An export counts only if its files are those of its card, and every field has its kind."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psfleet.evidence.exported_model import README, InvalidExportError, ModelExport
from tests.psfleet.evidence.made_exports import FILES, card_of, write_export
from trainer.contract.export import CARD


def why_not(folder: Path) -> str:
    with pytest.raises(InvalidExportError) as refused:
        ModelExport.read(folder)
    assert str(refused.value).isprintable()
    return str(refused.value)


def test_a_whole_export_is_read_with_and_without_the_page_of_the_controller(tmp_path: Path) -> None:
    folder = write_export(tmp_path / "export")
    assert ModelExport.read(folder).card == card_of()
    (folder / README).write_text("# linear")
    assert ModelExport.read(folder).bytes == sum(map(len, FILES.values()))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"version": 2}, "version 1"),
        ({"run_id": "../x"}, "run_id"),
        ({"model": "x\x1b[2J"}, "model"),
        ({"model": "a|b"}, "model"),
        ({"release": None}, "release"),
        ({"fingerprint": "0"}, "fingerprint"),
        ({"checkpoint": "a b"}, "checkpoint"),
        ({"tensorflow": 2}, "tensorflow"),
        ({"global_step": True}, "global_step"),
        ({"global_step": -1}, "global_step"),
        ({"global_step": 2**53 + 1}, "global_step"),
        ({"examples": 1.5}, "examples"),
        ({"metrics": {"loss": "low"}}, "metrics"),
        ({"metrics": {"a\nb": 1}}, "metrics"),
        ({"metrics": {f"m{number}": 1 for number in range(1001)}}, "metrics"),
        ({"metrics": {"loss": 10**400}}, "metrics"),
        ({"metrics": {"loss": math.nan}}, "metrics"),
        ({"inputs": {}}, "inputs"),
        ({"inputs": {"features": {"dtype": "`rm`", "shape": []}}}, "inputs"),
        ({"outputs": {"y": {"dtype": "float32", "shape": [None, -1]}}}, "outputs"),
        ({"outputs": {"y": {"dtype": "float32", "shape": 1}}}, "outputs"),
        ({"outputs": {"y) or x(": {"dtype": "float32", "shape": []}}}, "outputs"),
        ({"checked": {"examples": 1, "bound": None, "largest_difference": 0}}, "checked"),
        ({"files": {}}, "saved_model.pb is missing"),
        ({"files": {"saved_model.pb": {"sha256": "0", "bytes": 5}}}, "files"),
        ({"files": [1]}, "files"),
    ],
)
def test_a_card_with_a_wrong_field_is_refused(tmp_path: Path, changes: dict[str, object], named: str) -> None:
    write_export(tmp_path / "export", {} if changes.get("files") == {} else FILES, card_of(**changes))
    assert named in why_not(tmp_path / "export")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: (folder / CARD).unlink(), CARD),
        (lambda folder: (folder / CARD).write_text("[" * 100_000), CARD),
        (lambda folder: (folder / CARD).write_text("[]"), CARD),
        (lambda folder: (folder / "saved_model.pb").unlink(), "saved_model.pb is missing"),
        (
            lambda folder: (folder / "saved_model.pb").write_bytes(b"graqh"),
            "saved_model.pb has another content",
        ),
        (lambda folder: (folder / "notes.txt").write_text("x"), "'notes.txt' is not in"),
        (lambda folder: (folder / "a\x1b").write_text("x"), "is not in"),
        (lambda folder: (folder / "assets").symlink_to("/etc"), "'assets' is not in"),
    ],
)
def test_an_export_with_other_files_than_its_card_says_is_refused(
    tmp_path: Path, damage: Callable[[Path], object], named: str
) -> None:
    folder = write_export(tmp_path / "export")
    damage(folder)
    assert named in why_not(folder)


def test_a_link_does_not_stand_for_a_file_or_for_the_export(tmp_path: Path) -> None:
    folder = write_export(tmp_path / "export")
    (folder / "saved_model.pb").rename(tmp_path / "elsewhere")
    (folder / "saved_model.pb").symlink_to(tmp_path / "elsewhere")
    assert "saved_model.pb has another content" in why_not(folder)
    (tmp_path / "linked").symlink_to(write_export(tmp_path / "real"))
    assert why_not(tmp_path / "linked") == "it is no folder"


@pytest.mark.parametrize(
    "name", ["../x", "variables/../../x", "/etc/x", "README.md", CARD, "saved_model.pb.py"]
)
def test_a_card_cannot_name_other_files(tmp_path: Path, name: str) -> None:
    card = card_of()
    card["files"][name] = card["files"]["saved_model.pb"]
    folder = write_export(tmp_path / "export", card=json.loads(json.dumps(card)))
    assert f"{name!r} is not a name of its files" in why_not(folder) or f"{name} is missing" in why_not(
        folder
    )


def test_what_differs_from_the_runs_own_records_is_named(tmp_path: Path) -> None:
    exported = ModelExport.read(write_export(tmp_path / "export"))
    known: dict[str, list[Any]] = {
        "run_id": ["r1"],
        "model": ["linear"],
        "global_step": [40],
        "fingerprint": ["0123456789abcdef"],
    }
    assert exported.differences(known) == []
    assert exported.differences(known | {"run_id": ["r2"], "checkpoint": ["a", "b"]}) == [
        "its run id is r1, that of the run is r2",
        "its checkpoint is model.ckpt-40, that of the run is a or b",
    ]


def test_another_signature_than_was_asked_for_is_named(tmp_path: Path) -> None:
    exported = ModelExport.read(write_export(tmp_path / "export"))
    assert exported.other_names({}) == exported.other_names({"inputs": ["features"], "outputs": []}) == []
    assert exported.other_names({"inputs": ["x"], "outputs": ["y"]}) == [
        "its inputs are features, asked for are x"
    ]
