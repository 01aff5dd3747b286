"""The manifest on the controller, of the files that it carries to hosts."""

from pathlib import Path

import pytest

from psfleet.carry.carried_manifest import read_manifest, write_manifest


@pytest.mark.parametrize("content", ["", "{", "\udcff", "[]", "null", "7", '"a"', '{"a": 7}', '{"a": []}'])
def test_a_damaged_manifest_is_written_anew(tmp_path: Path, content: str) -> None:
    index, source = tmp_path / "index.json", tmp_path / "labels.txt"
    index.write_text(content, encoding="utf-8", errors="surrogateescape")
    source.write_text("cat\n")
    assert read_manifest(index) == {}
    files = write_manifest({"": source}, index, print)
    assert read_manifest(index) == files
    assert [(name, file.size) for name, file in files.items()] == [("labels.txt", 4)]
