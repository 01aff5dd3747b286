"""The role package_store with the real locks, by ansible-playbook on this machine, in check mode."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.repository import played, written_play

HOSTS = {"node1": "cpu-python3.11-x86_64", "node2": "gpu-python3.13-x86_64", "node3": "cpu-python3.11-x86_64"}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Return the folder of an inventory of hosts with known environments."""
    hosts = {
        name: {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "its_environment": environment,
        }
        for name, environment in HOSTS.items()
    }
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    message = "found {{ __package_store_wheels.environments | to_json }} found"
    show = {"debug": {"msg": message}, "run_once": True}
    role = "psfleet.cluster.package_store"
    told = {
        "psfleet_requirements": {"environment": "{{ its_environment }}"},
        "psfleet_content": {"environments": []},
        "cacheable": True,
    }
    variables: dict[str, list[str]] = {"cluster_programs": []}
    written_play(tmp_path, show, roles=[role], pre_tasks=[{"set_fact": told}], vars=variables)
    return tmp_path


def checked(cluster: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Return the exit code, the environments that the role described, and the output."""
    cache = cluster / "cache"
    settings = {
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        "PSFLEET_CACHE": str(cache),
    }
    inventory = cluster / "hosts.json"
    done = played(cluster / "playbook.yml", "-i", inventory, "--check", *arguments, **settings)
    assert not cache.exists()
    found = re.search(r'"msg": "found (.*) found"', done.stdout)
    described = json.loads(json.loads(f'"{found[1]}"')) if found else {}
    return done.returncode, described, done.stdout + done.stderr


def test_each_needed_environment_is_described_once(cluster: Path) -> None:
    code, described, said = checked(cluster)
    assert code == 0, said
    assert sorted(described) == sorted(set(HOSTS.values()))
    gpu, cpu = described["gpu-python3.13-x86_64"], described["cpu-python3.11-x86_64"]
    assert gpu["python_version"] == "3.13"
    assert gpu["lock_hash"] != cpu["lock_hash"]
    assert not Path(gpu["archive"]).exists()
    # Hosts are asked for this space before an archive exists.
    assert gpu["archive_bytes"] > 3e9 > cpu["archive_bytes"] > 3e8
    assert gpu["environment_bytes"] > 6e9 > cpu["environment_bytes"] > 1.5e9
    assert gpu["base"] == cpu["base"] == ""


def test_no_gpu_environment_is_made_for_hosts_without_gpus(cluster: Path) -> None:
    code, described, said = checked(cluster, "--limit", "node1,node3")
    assert code == 0, said
    assert list(described) == ["cpu-python3.11-x86_64"]
