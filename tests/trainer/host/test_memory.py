"""The memory that a host has for its tasks, and the remedy if that is too little."""

from pathlib import Path

import pytest

from trainer.host.memory import memory_remedy


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
