import hashlib
from pathlib import Path

from trainer.host.whole_files import BLOCK_BYTES, file_sha256, text_of


def test_the_text_of_a_file_is_read_and_that_of_a_folder_is_empty(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff\xc3\xa9")
    assert (text_of(tmp_path / "file"), text_of(tmp_path)) == ("\ufffd\u00e9", "")


def test_the_hash_of_a_file_is_that_of_all_its_blocks(tmp_path: Path) -> None:
    content = b"0123456789" * (BLOCK_BYTES // 4)
    (tmp_path / "file").write_bytes(content)
    assert file_sha256(tmp_path / "file") == hashlib.sha256(content).hexdigest()
