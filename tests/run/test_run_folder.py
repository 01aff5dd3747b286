from pathlib import Path

import pytest

from plugins.run_folder import begun_settings, read_object


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000, '{"a":' * 100_000])
def test_a_damaged_file_of_a_run_counts_as_absent(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.json").write_text(text)
    assert read_object(tmp_path / "settings.json") == {}
    assert begun_settings(tmp_path) == {}


def test_what_a_run_began_with_is_read_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"training": {"a": 1}, "tasks": {}}')
    assert begun_settings(tmp_path) == {"cluster": {"a": 1}, "tasks": {}, "program": None}
