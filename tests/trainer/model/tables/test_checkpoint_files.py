"""What is read of a manifest of tables."""

from pathlib import Path

import pytest

from trainer.model.tables.checkpoint_files import MANIFEST, whole_files_of


@pytest.mark.parametrize(
    "manifest", [None, "", "{", "[]", '{"version": 2, "global_step": 7, "layout": "mod", "ps": 1}', "null"]
)
def test_a_manifest_that_cannot_be_read_names_no_files(tmp_path: Path, manifest: str | None) -> None:
    if manifest is not None:
        (tmp_path / f"model.ckpt-7.{MANIFEST}").write_text(manifest, encoding="utf-8")
    assert whole_files_of(tmp_path / "model.ckpt-7") == []
