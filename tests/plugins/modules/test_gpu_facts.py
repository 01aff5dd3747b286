"""What host_facts finds of GPUs on this machine."""

import os
from typing import Any

import pytest

from plugins.module_utils.checks.gpu_checks import gpu_checks
from plugins.module_utils.facts.gpu_look import refusal
from plugins.module_utils.facts.nvidia import GpuFacts
from tests.plugins.module_utils.made_gpu_hosts import KERNEL
from tests.plugins.modules.module_run import fact_of

TASK = {"job": "worker", "index": 0, "host": "node3"}


def test_a_host_without_gpu_tasks_has_no_gpu_facts() -> None:
    answer = fact_of("gpus", host="node3", tasks=[TASK | {"gpus": []}])
    assert (answer["gpu_facts"], answer["checks"]) == ({}, [])


@pytest.mark.parametrize("driver", ["check", "present", "look"])
def test_a_missing_gpu_is_refused_except_when_only_looking(driver: str) -> None:
    asked: Any = {"host": "node3", "tasks": [TASK | {"gpus": [97]}], "packages": ["no-such-package"]}
    answer = fact_of("gpus", driver=driver, **asked)
    if driver == "look":
        assert [check["state"] for check in answer["checks"]].count("failed") == 1
        assert answer["gpu_facts"]["kernel"] == os.uname().release
    else:
        assert answer["msg"].startswith("node3")
        assert "Nothing was changed there" in answer["msg"]


def test_installed_packages_without_a_module_give_no_advice_to_install_the_driver() -> None:
    bare = GpuFacts(bus=("0000:83:00.0",), bus_drivers=("",), secure_boot=False, kernel=KERNEL)
    checks = gpu_checks(bare, [TASK | {"gpus": [0]}], "x86_64", None)
    assert "set nvidia_cuda_driver to present" in refusal("node3", bare, checks, [])
    said = refusal("node3", bare, checks, ["nvidia-smi"])
    assert "nvidia-smi are installed, and no kernel has a module" in said
    assert "nvidia_cuda_driver to present" not in said
