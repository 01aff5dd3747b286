"""The global step in real checkpoints, and in damaged ones."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from psfleet.evidence import checkpoint_steps
from psfleet.evidence.checkpoint_steps import global_step_in
from psfleet.evidence.saved_models import model_lines

MAGIC = bytes.fromhex("57fb808b247547db")
STEPS = {
    "of_int64": 300,
    "of_int32": 0,
    "of_floats": None,
    "numbered-7": 400,
    "with_many_variables": 2**40,
    "in_parts": 12,
    "of_version_2": None,
    "not_there": None,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    script = Path(__file__).with_name("saving_program.py")
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, script, folder], env=quiet, check=True, timeout=250)
    return folder


@pytest.mark.slow
def test_the_global_step_of_each_kind_of_checkpoint_is_read_from_its_files(saved: Path) -> None:
    assert {name: global_step_in(saved / "checkpoints" / name) for name in STEPS} == STEPS


@pytest.mark.slow
def test_a_model_that_was_saved_before_the_end_is_said_to_be_behind(saved: Path) -> None:
    said = [line for line in model_lines(saved, "runs/r1", 400) if " was saved " in line[0]]
    assert said == [
        ("in_parts was saved at step 12 of 400: 388 steps before the end", True),
        ("of_int32 was saved at step 0 of 400: not the trained model", False),
    ]
    assert not any(" was saved " in line for line, _ in model_lines(saved, "runs/r1"))


@pytest.mark.slow
def test_a_damaged_checkpoint_has_no_step_or_another_and_no_traceback(saved: Path, tmp_path: Path) -> None:
    whole, chance = (saved / "checkpoints/with_many_variables.index").read_bytes(), random.Random(3)
    part = saved / "checkpoints/with_many_variables.data-00000-of-00001"
    (tmp_path / "a.data-00000-of-00001").write_bytes(part.read_bytes())
    (tmp_path / "a.index").write_bytes(whole)
    assert global_step_in(tmp_path / "a") == 2**40
    for _ in range(300):
        content = bytearray(whole[: chance.choice((len(whole), chance.randrange(len(whole))))])
        for _ in range(chance.randrange(1, 4)):
            if content:
                # The footer leads to all other blocks.
                content[-chance.randrange(1, min(len(content), 3000) + 1)] = chance.randrange(256)
        (tmp_path / "a.index").write_bytes(content)
        assert global_step_in(tmp_path / "a") in {None, 2**40}
    for kind in ("link", "fifo"):
        (tmp_path / "a.index").unlink()
        if kind == "link":
            (tmp_path / "a.index").symlink_to(saved / "checkpoints/with_many_variables.index")
        else:
            os.mkfifo(tmp_path / "a.index")
        assert global_step_in(tmp_path / "a") is None


def test_an_index_that_lists_a_block_again_and_again_is_refused(tmp_path: Path) -> None:
    ends = b"\0\0\0\0" + b"\1\0\0\0"
    # A block with a key "k" that shares no byte with another one; its value has the place of the block.
    block = b"\0\1\2k" + b"\0\x0e" + ends
    listing = b"\0\1\2k\0\x0e" * 600_000 + ends
    size = len(listing)
    digits = [size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21]
    footer = (b"\0\0" + bytes([len(block) + 5, *digits])).ljust(40, b"\0") + MAGIC
    (tmp_path / "a.index").write_bytes(block + b"\0" * 5 + listing + b"\0" * 5 + footer)
    with pytest.raises(ValueError, match="its blocks are larger than it is"):
        list(checkpoint_steps._entries((tmp_path / "a.index").read_bytes()))
    assert global_step_in(tmp_path / "a") is None
