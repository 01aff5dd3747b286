"""The action and the module together, by ansible-playbook on this machine."""

import grp
import json
import os
import re
from pathlib import Path

import pytest

from tests.repository import HERE, played, written_play


def carried(folder: Path, *checks: bool) -> tuple[list[list[object]], str]:
    """Carry once for each of `checks`; return change, data and count of records each time, and the output."""
    manifest = {"sources": {"": f"{folder}/source"}, "cache_directory": f"{folder}/cache"}
    group = grp.getgrgid(os.getegid()).gr_name
    arguments = {"directory": f"{folder}/data", "records": f"{folder}/records", "group": group}
    data, records = (f"query('ansible.builtin.fileglob', '{folder}/{of}/*')" for of in ("data", "records"))
    shown = f"['told', carried.changed, {data} | map('basename') | sort, {records} | length]"
    tasks = [
        task | {"check_mode": check, "diff": check}
        for check in checks
        for task in (
            {"psfleet.cluster.carried_manifest": manifest, "register": "manifest"},
            {
                "psfleet.cluster.carried_files": {"index": "{{ manifest.index }}", **arguments},
                "register": "carried",
            },
            {"ansible.builtin.debug": {"msg": f"{{{{ {shown} | to_json }}}}"}},
        )
    ]
    done = played(written_play(folder, *tasks), "-i", "here,", *HERE)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [json.loads(line)[1:] for line in re.findall(r'\["told".*\]', done.stdout)]
    return told, done.stdout


@pytest.mark.slow
def test_missing_files_are_listed_in_check_mode_then_carried_once(tmp_path: Path) -> None:
    source, data = tmp_path / "source", tmp_path / "data"
    source.mkdir()
    (source / "labels.txt").write_text("cat\n")
    (source / "images.bin").write_bytes(os.urandom(5000))
    both = ["images.bin", "labels.txt"]
    told, said = carried(tmp_path, True, False, False)
    assert told == [[True, [], 0], [True, both, 1], [False, both, 1]]
    assert re.search(r"^\+images\.bin 5000 bytes [0-9a-f]{64}$", said, re.MULTILINE)
    assert (data / "labels.txt").read_text() == "cat\n"
    (source / "labels.txt").write_text("dog\n")
    (source / "images.bin").unlink()
    told, said = carried(tmp_path, True, False, True)
    assert told == [[True, both, 1], [True, both[1:], 1], [False, both[1:], 1]]
    assert re.search(r"^-images\.bin 5000 bytes", said, re.MULTILINE)
    assert re.search(r"^-labels\.txt 4 bytes", said, re.MULTILINE)
    assert re.search(r"^\+labels\.txt 4 bytes", said, re.MULTILINE)
    assert (data / "labels.txt").read_text() == "dog\n"
