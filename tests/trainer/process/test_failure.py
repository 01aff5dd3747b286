"""The class of an exception: too little memory has its own class, with a remedy."""

import pytest
import tensorflow as tf

from trainer.contract.exit_codes import OUT_OF_MEMORY, PROGRAM
from trainer.process.failure import failure_of

EXHAUSTED = tf.errors.ResourceExhaustedError
OOM = "OOM when allocating tensor with shape[200000,200000] and type float"


@pytest.mark.parametrize(
    ("error", "code", "begins"),
    [
        (MemoryError(), OUT_OF_MEMORY, "MemoryError\n"),
        (
            tf.errors.ResourceExhaustedError(None, None, OOM),
            OUT_OF_MEMORY,
            f"ResourceExhaustedError: {OOM}\n",
        ),
        (
            tf.errors.ResourceExhaustedError(None, None, "x; No space left"),
            PROGRAM,
            "ResourceExhaustedError: x",
        ),
        (ValueError("MemoryError"), PROGRAM, "ValueError: MemoryError"),
    ],
)
def test_only_errors_of_too_little_memory_have_the_class_out_of_memory(
    error: Exception, code: int, begins: str
) -> None:
    failure = failure_of(error)
    assert failure.code == code
    assert failure.reason.startswith(begins)
    assert ("or more memory helps" in failure.reason) == (code == OUT_OF_MEMORY)
