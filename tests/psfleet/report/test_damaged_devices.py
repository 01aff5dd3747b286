import os
from pathlib import Path

import pytest

from psfleet.report.devices import render


@pytest.mark.parametrize("text", ["[" * 100_000, '{"task":' * 100_000, "[]", '{"variables": 1}', "\0"])
def test_a_damaged_report_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "worker0.json").write_text(text)
    assert f"{tmp_path}/devices/worker0.json cannot be read" in render(tmp_path)


def test_a_report_that_is_too_large_is_named(tmp_path: Path) -> None:
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "worker0.json").touch()
    os.truncate(tmp_path / "devices" / "worker0.json", 2**40)
    assert "it has 1,099,511,627,776 bytes, and at most 16,000,000 are read" in render(tmp_path)
