"""The installation of NVIDIA's driver, on this machine: all tasks of the role but the installation itself."""

import json
import os
from pathlib import Path

import pytest
import yaml

from tests.repository import HERE, ROOT, played, written_play

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root looks at a host")
TASK = {"job": "worker", "index": 0, "host": "here", "gpus": [97]}
FOUND = {"installation": {"packages": ["nvidia-none"], "says": "nvidia-none is installed"}}


@as_root
def test_the_installed_packages_are_named_if_the_driver_does_not_work_then(tmp_path: Path) -> None:
    """The second look at the GPUs takes the place of the first one, which said what was to be installed."""
    role = ROOT / "roles" / "nvidia_cuda"
    tasks = yaml.safe_load((role / "tasks" / "driver.yml").read_text())
    taken = [task for task in tasks if "ansible.builtin.include_tasks" not in task]
    assert len(tasks) - len(taken) == 2  # the installation and the reboot
    looked = {"ansible.builtin.set_fact": {"psfleet_gpus": FOUND, "cacheable": True}}
    variables = {"cluster_tasks": {"here": [TASK]}, "cluster_systems": {}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"here": {}}, "vars": variables}}))
    play = written_play(tmp_path, looked, *taken, vars_files=[str(role / "vars" / "main.yml")])
    said = played(play, "-i", tmp_path / "hosts.json", *HERE).stdout
    assert "nvidia-none is installed\n" in said
    assert "FAILED   Require that the driver works: here\n" in said
    assert "here: nvidia-none are installed, and no kernel has a module of NVIDIA's driver" in said
