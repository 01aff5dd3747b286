"""A checkpoint cut into parts, and put together by TensorFlow, is the same."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from trainer.coordination.ledger_parts import COUNTERS
from trainer.model.checkpoint_parts import Slice, bytes_of, parts_of
from trainer.model.checkpoints import read_checkpoint


def test_a_part_exceeds_its_bytes_only_if_a_row_is_larger() -> None:
    variables = {"one": ((3,), 4), "large": ((10, 4), 4), "power": ((), 4), "wide": ((2, 100), 4)}
    parts = parts_of(variables, most_bytes=48)
    assert parts == [
        [Slice("one", (3,), 0, 3)],
        [Slice("large", (10, 4), 0, 3)],
        [Slice("large", (10, 4), 3, 3)],
        [Slice("large", (10, 4), 6, 3)],
        [Slice("large", (10, 4), 9, 1), Slice("power", (), 0, 1)],
        [Slice("wide", (2, 100), 0, 1)],
        [Slice("wide", (2, 100), 1, 1)],
    ]
    assert bytes_of(variables) == 12 + 160 + 4 + 800


def test_small_variables_share_a_part() -> None:
    assert [len(part) for part in parts_of({f"v{n}": ((100,), 4) for n in range(10)}, 2000)] == [5, 5]


def test_variables_without_rows_or_dimensions_have_one_slice() -> None:
    (part,) = parts_of({"none": ((0, 5), 4), "power": ((), 4)})
    assert [(piece.name, piece.rows, piece.specification) for piece in part] == [
        ("none", 0, ""),
        ("power", 1, ""),
    ]


def test_merged_parts_equal_the_whole_checkpoint(tmp_path: Path) -> None:
    values = {
        COUNTERS: np.array([7, 0, 7]),
        "table": np.arange(70, dtype=np.float32).reshape(7, 2, 5),
        "biases": np.arange(9, dtype=np.float64),
        "power": np.array(0.5, np.float32),
    }
    parts = parts_of({name: (value.shape, value.itemsize) for name, value in values.items()}, 100)
    assert len(parts) > 3
    for number, part in enumerate(parts):
        tf.raw_ops.SaveV2(
            prefix=str(tmp_path / f"part-{number}"),
            tensor_names=[piece.name for piece in part],
            shape_and_slices=[piece.specification for piece in part],
            tensors=[piece.of(values[piece.name]) for piece in part],
        )
    prefixes = [str(tmp_path / f"part-{number}") for number in range(len(parts))]
    whole = tmp_path / "model.ckpt-7"
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=prefixes, destination_prefix=str(whole), delete_old_dirs=False
    )
    checkpoint, problem = read_checkpoint(whole)
    assert checkpoint is not None, problem
    assert checkpoint.values.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(checkpoint.values[name], value)
