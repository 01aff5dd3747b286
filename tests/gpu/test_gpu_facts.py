"""The module as Ansible runs it, on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TASK = {"job": "worker", "index": 0, "host": "node3"}


def run_module(**options: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the module's answer."""
    command = ["ansible", "localhost", "-i", "localhost,", "-c", "local", "-m", "gpu_facts", "-o"]
    command += [
        "-e",
        f"ansible_python_interpreter={sys.executable}",
        "-a",
        json.dumps({"host": "node3"} | options),
    ]
    environment = os.environ | {"ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    environment |= {
        "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.oneline",
    }
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    answer: dict[str, Any] = json.loads(done.stdout.partition("=> ")[2])
    return answer


def test_a_host_whose_tasks_have_no_gpus_is_not_looked_at() -> None:
    answer = run_module(tasks=[TASK | {"gpus": []}])
    assert (answer["gpu_facts"], answer["checks"], answer["changed"]) == ({}, [], False)


@pytest.mark.parametrize("driver", ["check", "present", "look"])
def test_a_gpu_that_no_machine_has_is_refused_by_all_that_may_refuse(driver: str) -> None:
    packages = {"debian-12": ["no-such-package"], "debian-13": ["no-such-package"]}
    answer = run_module(tasks=[TASK | {"gpus": [97]}], driver=driver, system_packages=packages)
    if driver == "look":
        assert [check["state"] for check in answer["checks"]].count("failed") == 1
        assert answer["gpu_facts"]["kernel"] == os.uname().release
    else:
        assert answer["msg"].startswith("node3")
        assert "Nothing was changed there" in answer["msg"]
