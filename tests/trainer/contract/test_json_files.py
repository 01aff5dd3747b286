"""JSON files: replaced in one piece, with numbers that JSON can say, and read whatever is in them."""

import math
from pathlib import Path

import pytest

from trainer.contract.json_files import read_object, write_json


def test_a_file_is_replaced_whole_and_a_number_that_json_cannot_say_is_null(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    file.write_text("as it was")
    file.with_name("beside").hardlink_to(file)
    write_json(file, {"loss": math.inf, 1: [0.5, (math.nan, {"é": "x"})]})
    assert file.read_text() == '{"loss": null, "1": [0.5, [null, {"\\u00e9": "x"}]]}\n'
    assert file.with_name("beside").read_text() == "as it was"
    assert read_object(file) == {"loss": None, "1": [0.5, [None, {"é": "x"}]]}
    write_json(file, {"a": 1}, indent=2)
    assert file.read_text() == '{\n  "a": 1\n}\n'
    assert {path.name for path in tmp_path.iterdir()} == {"figures.json", "beside"}


@pytest.mark.parametrize("text", [None, "", "[1]", '{"a": 1', "[" * 100_000])
def test_what_is_no_whole_object_counts_as_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "x.json").write_text(text)
    assert read_object(tmp_path / "x.json") == {}
