"""The memory that a host has for its tasks."""

from pathlib import Path

import pytest

from trainer.host.memory import read_memory_limit


@pytest.mark.parametrize(
    ("name", "text", "limit"),
    [
        ("memory.max", "1073741824\n", 2**30),
        ("memory.max", "max\n", None),
        ("memory/memory.limit_in_bytes", "536870912\n", 2**29),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", None),
        ("memory.max", str(2**60), None),
    ],
)
def test_the_limit_of_a_control_group_is_read(
    tmp_path: Path, name: str, text: str, limit: int | None
) -> None:
    assert read_memory_limit(tmp_path) is None
    file = tmp_path / "sys/fs/cgroup" / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert read_memory_limit(tmp_path) == limit
