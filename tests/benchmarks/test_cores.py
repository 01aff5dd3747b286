"""Parts of a core for tasks, by the control groups of both versions."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.cores import CoresError, CoreShares, Hierarchy, hierarchy_in
from tests.repository import ROOT
from tests.trainer.processes import until

ONE = """\
proc /proc proc rw,nosuid 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nsdelegate 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
"""
TWO = "proc /proc proc rw,nosuid 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"
SPIN = (
    "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
)


HERE = hierarchy_in(Path("/proc/mounts").read_text())
needs_groups = pytest.mark.skipif(
    os.geteuid() != 0 or HERE is None or not os.access(HERE.folder, os.W_OK),
    reason="only root makes control groups, where they are mounted to be written",
)


@pytest.mark.parametrize(
    ("mounts", "found"),
    [
        (ONE, Hierarchy(Path("/sys/fs/cgroup/cpu,cpuacct"), 1)),
        (TWO, Hierarchy(Path("/sys/fs/cgroup"), 2)),
        ("proc /proc proc rw 0 0\n", None),
    ],
)
def test_the_hierarchy_that_limits_cpu_time_is_found_among_the_mounts(
    mounts: str, found: Hierarchy | None
) -> None:
    assert hierarchy_in(mounts) == found


@pytest.mark.parametrize(
    ("version", "files"),
    [
        (1, {"cpu.cfs_period_us": "20000", "cpu.cfs_quota_us": "4000"}),
        (2, {"cpu.max": "4000 20000"}),
    ],
)
def test_a_part_of_a_core_is_that_part_of_each_period(version: int, files: dict[str, str]) -> None:
    assert Hierarchy(Path(), version).files(0.2) == files


@needs_groups
def test_a_task_gets_its_part_of_a_core_and_no_more() -> None:
    with CoreShares({"slow": 0.1}) as shares:
        began = time.monotonic()
        command = [*shares.inside("slow"), sys.executable, "-c", SPIN]
        spent = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        passed = time.monotonic() - began
        assert shares.inside("other") == []
    assert spent < 0.2 * passed


@needs_groups
def test_groups_are_gone_after_an_error_and_so_is_what_ran_in_them() -> None:
    with CoreShares({"a": 0.5, "b": 0.5}) as shares:
        folder = Path(shares.inside("a")[-1]).parents[1]
        with subprocess.Popen([*shares.inside("a"), "sleep", "600"]) as left:
            until(lambda: (folder / "a" / "cgroup.procs").read_text() == f"{left.pid}\n", "its group", 10)
            shares.close()
            assert left.wait() == -signal.SIGKILL
    assert not folder.exists()
    with pytest.raises(CoresError), CoreShares({"a/b/c": 0.5}):
        pass
    assert not folder.exists()


@needs_groups
def test_a_killed_benchmark_leaves_no_group() -> None:
    code = (
        "import time\nfrom benchmarks.cores import CoreShares\n"
        "shares = CoreShares({'a': 0.5}).__enter__()\n"
        "print(shares.inside('a')[-1], flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as benchmark:
        assert benchmark.stdout
        folder = Path(os.fsdecode(benchmark.stdout.readline().strip())).parents[1]
        assert folder.is_dir()
        benchmark.kill()
    until(lambda: not folder.exists(), "the removal of its groups", 30)
