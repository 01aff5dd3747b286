"""What the module says of this machine."""

import os
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.host.gpu_checks import gpu_chain
from plugins.module_utils.host.host_facts import parse_os_release
from plugins.module_utils.host.nvidia import GpuFacts
from plugins.module_utils.steps.gpu_facts import plan_installation, refusal, run
from tests.plugins.steps.module_run import answer_of
from tests.trainer.host.made_gpu_hosts import KERNEL

TASK = {"job": "worker", "index": 0, "host": "node3"}


def test_a_host_whose_tasks_have_no_gpus_is_not_looked_at() -> None:
    answer = answer_of(run, host="node3", tasks=[TASK | {"gpus": []}])
    assert (answer["gpu_facts"], answer["checks"], answer["changed"]) == ({}, [], False)


@pytest.mark.parametrize("driver", ["check", "present", "look"])
def test_a_gpu_that_no_machine_has_is_refused_by_all_that_may_refuse(driver: str) -> None:
    packages = {"debian-12": ["no-such-package"], "debian-13": ["no-such-package"]}
    asked: Any = {"host": "node3", "tasks": [TASK | {"gpus": [97]}], "system_packages": packages}
    answer = answer_of(run, driver=driver, **asked)
    if driver == "look":
        assert [check["state"] for check in answer["checks"]].count("failed") == 1
        assert answer["gpu_facts"]["kernel"] == os.uname().release
    else:
        assert answer["msg"].startswith("node3")
        assert "Nothing was changed there" in answer["msg"]


@pytest.mark.parametrize(
    ("chosen", "in_sources", "headers"),
    [
        ([], True, ["linux-headers-amd64", f"linux-headers-{KERNEL}"]),
        ([], False, ["linux-headers-amd64"]),
        (["cuda-drivers"], True, []),
    ],
)
def test_the_headers_of_the_kernel_that_runs_come_along_where_the_sources_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: list[str], in_sources: bool, headers: list[str]
) -> None:
    """DKMS compiles for no kernel without them. This apt knows all packages but perhaps that one."""
    lacks = "" if in_sources else f"[ $package = linux-headers-{KERNEL} ] && continue; "
    apt = tmp_path / "apt-cache"
    apt.write_text(
        f'#!/bin/sh\nshift\nfor package; do {lacks}echo "$package:"; echo "  Candidate: 1.0"; done\n'
    )
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    release = parse_os_release(Path("/etc/os-release").read_text(encoding="utf-8"))
    own = {f"{release.identity}-{release.version}": ["nvidia-smi", "linux-headers-{flavour}"]}
    plan = plan_installation(GpuFacts(kernel=KERNEL, secure_boot=False), own, chosen)
    assert plan.refusal == ""
    assert [package for package in plan.packages if "headers" in package] == headers


def test_packages_without_a_module_are_not_to_be_installed_again() -> None:
    bare = GpuFacts(bus=("0000:83:00.0",), bus_drivers=("",), secure_boot=False, kernel=KERNEL)
    checks = gpu_chain(bare, [TASK | {"gpus": [0]}], "x86_64")
    assert "set nvidia_cuda_driver to present" in refusal("node3", bare, checks, [])
    said = refusal("node3", bare, checks, ["nvidia-smi"])
    assert "nvidia-smi are installed, and no kernel has a module" in said
    assert "nvidia_cuda_driver to present" not in said
