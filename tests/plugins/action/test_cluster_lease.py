"""Playbooks that want the same hosts at once, on this machine, with a lease of their own."""

import json
import time
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from plugins.modules import host_lease
from tests.repository import HERE, played, written_play
from trainer.host.lease import FILE, Lease, read

pytestmark = pytest.mark.slow
HOSTS = ("-i", "node1,node2", *HERE)
# Of the process that runs the playbook: the parent of the one that runs a task.
KILL = "{{ lookup('ansible.builtin.pipe', 'kill -9 $(ps -o ppid= -p $PPID)') }}"


def acting(folder: Path, file: Path, name: str, *tasks: object) -> CompletedProcess[str]:
    """Run a playbook that takes the leases, does the tasks, and ends."""
    (folder / name).mkdir()
    taken = {"state": "taken", "hosts": ["node2", "node1"], "what": name, "file": str(file)}
    playbook = written_play(
        folder / name, {"psfleet.cluster.cluster_lease": taken, "run_once": True}, *tasks, become=False
    )
    return played(playbook, *HOSTS)


def given_back(file: Path) -> Lease:
    """Return the lease once nobody has it, which a playbook's end brings about."""
    end = time.monotonic() + 120
    while (found := read(file)).token:
        assert time.monotonic() < end, found
        time.sleep(0.1)
    return found


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """Return the file of a lease that ada has, as long as the test lasts."""
    file = tmp_path / "held"
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    file.write_text(json.dumps(vars(Lease(4, "a", "ada@desk\x1b[2J (deploy.yml)", now - 5, now + 9000))))
    return file


def test_whoever_comes_second_is_told_who_was_first_and_a_check_as_well(tmp_path: Path, held: Path) -> None:
    before = held.read_bytes()
    done = acting(tmp_path, held, "train.yml", {"ansible.builtin.debug": {"msg": "it begins"}})
    assert done.returncode == 2
    assert "it begins" not in done.stdout
    assert "Somebody else acts on the hosts. Nothing was changed." in done.stdout
    assert "\n- node1: ada@desk [2J (deploy.yml) has held it for" in done.stdout
    done = played(tmp_path / "train.yml" / "playbook.yml", *HOSTS, "--check")
    assert done.returncode == 0
    assert "it begins" in done.stdout
    assert "node1: ada@desk [2J (deploy.yml) has held it for" in " ".join(done.stderr.split())
    assert held.read_bytes() == before


def test_it_is_given_back_when_a_playbook_ends_and_when_it_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "lease"
    seen = {"ansible.builtin.slurp": {"path": str(file)}, "register": "seen"}
    shown = {
        "ansible.builtin.debug": {
            "msg": "{{ (seen.content | b64decode | from_json).token | length }} letters"
        }
    }
    done = acting(tmp_path, file, "deploy.yml", seen, shown)
    assert done.returncode == 0, done.stdout
    assert "32 letters" in done.stdout
    assert given_back(file).turn == 2, "one for each host, which are one machine"
    done = acting(tmp_path, file, "killed.yml", {"ansible.builtin.debug": {"msg": KILL}})
    assert done.returncode == -9
    assert given_back(file).holder.endswith(" (killed.yml)")
    assert host_lease.DOCUMENTATION["options"]["file"]["default"] == str(FILE)  # type: ignore[index]


def test_playbooks_of_one_command_do_not_keep_each_other_out(tmp_path: Path) -> None:
    file = tmp_path / "lease"
    taking = [
        {
            "psfleet.cluster.cluster_lease": {
                "state": state,
                "hosts": ["node1", "node2"],
                "what": what,
                "file": str(file),
            },
            "run_once": True,
        }
        for state, what in (("taken", "deploy.yml"), ("taken", "train.yml"), ("released", ""))
    ]
    for name, tasks in (("deploy", taking[:1]), ("train", taking[1:])):
        (tmp_path / name).mkdir()
        written_play(tmp_path / name, *tasks, become=False)
    done = played(tmp_path / "deploy" / "playbook.yml", tmp_path / "train" / "playbook.yml", *HOSTS)
    assert done.returncode == 0, done.stdout
    last = read(file)
    assert (last.token, last.turn) == ("", 4), "the last has let others act, for the first as well"
    assert last.holder.endswith(" (train.yml)")
