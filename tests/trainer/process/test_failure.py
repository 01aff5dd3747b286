"""The class of an exception: too little memory has its own class, with a remedy."""

from pathlib import Path

import pytest
import tensorflow as tf

from trainer.contract.exit_codes import OUT_OF_MEMORY, PROGRAM
from trainer.process.failure import failure_of, memory_remedy

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


@pytest.mark.parametrize(
    ("meminfo", "limit", "told"),
    [
        ("MemTotal: 8388608 kB\n", "", "its host has 8.0 GiB: "),
        ("MemTotal: 8388608 kB\n", "1610612736", "its host has 1.5 GiB: "),
        ("", "", "its host has too little memory: "),
    ],
)
def test_the_lowest_limit_of_memory_counts(tmp_path: Path, meminfo: str, limit: str, told: str) -> None:
    for place, text in {"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": limit}.items():
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(text)
    assert memory_remedy(tmp_path).startswith(told)
