"""The action and the module together, by ansible-playbook on this machine."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.repository import played


@pytest.fixture
def playbook(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "labels.txt").write_text("cat\n")
    (tmp_path / "source" / "images.bin").write_bytes(os.urandom(5000))
    manifest = {
        "psfleet.cluster.carried_manifest": {
            "sources": {"": f"{tmp_path}/source"},
            "cache_directory": f"{tmp_path}/cache",
        },
        "register": "manifest",
    }
    carry = {
        "psfleet.cluster.carried_files": {
            "index": "{{ manifest.index }}",
            "directory": f"{tmp_path}/data",
            "records": f"{tmp_path}/records",
        }
    }
    path = tmp_path / "playbook.yml"
    path.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [manifest, carry]}]))
    return path


def play(playbook: Path, *arguments: str) -> tuple[int, str]:
    """Return how many tasks changed something, and what was printed."""
    python = f"ansible_python_interpreter={sys.executable}"
    done = played(playbook, "-i", "here,", "-c", "local", "-e", python, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    changed = re.search(r"changed=(\d+)", done.stdout)
    assert changed
    return int(changed[1]), done.stdout


def test_what_lacks_is_shown_by_a_check_then_carried_and_then_nothing_is(
    playbook: Path, tmp_path: Path
) -> None:
    changed, said = play(playbook, "--check", "--diff")
    assert changed == 1
    assert re.search(r"^\+images\.bin 5000 bytes [0-9a-f]{64}$", said, re.MULTILINE)
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "records").exists()
    assert play(playbook)[0] == 1
    assert (tmp_path / "data" / "labels.txt").read_text() == "cat\n"
    assert play(playbook)[0] == 0
    (tmp_path / "source" / "labels.txt").write_text("dog\n")
    (tmp_path / "source" / "images.bin").unlink()
    changed, said = play(playbook, "--check", "--diff")
    assert changed == 1
    assert re.search(r"^-images\.bin 5000 bytes", said, re.MULTILINE)
    assert re.search(r"^-labels\.txt 4 bytes", said, re.MULTILINE)
    assert re.search(r"^\+labels\.txt 4 bytes", said, re.MULTILINE)
    assert (tmp_path / "data" / "labels.txt").read_text() == "cat\n"
    assert play(playbook)[0] == 1
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["labels.txt"]
    assert (tmp_path / "data" / "labels.txt").read_text() == "dog\n"
    assert play(playbook, "--check")[0] == 0
