"""Simultaneous playbooks for the same hosts, on this machine, with a lease file of these tests."""

import fcntl
import json
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from plugins.module_utils import lease
from plugins.module_utils.lease import FILE, Lease, read
from plugins.modules import host_lease
from plugins.plugin_utils.leases import Leases
from tests.repository import HERE, played, written_play

pytestmark = pytest.mark.slow
HOSTS = ("-i", "node1,node2", *HERE)
# Kills the process that runs the playbook: the parent of the one that runs a task.
KILL = "{{ lookup('ansible.builtin.pipe', 'kill -9 $(ps -o ppid= -p $PPID)') }}"


def acting(folder: Path, file: Path, name: str, *tasks: object) -> CompletedProcess[str]:
    """Run a playbook that takes the leases, does the tasks, and ends."""
    (folder / name).mkdir()
    taken = {"state": "taken", "hosts": ["node2", "node1"], "what": name, "file": str(file)}
    playbook = written_play(
        folder / name, {"psfleet.cluster.cluster_lease": taken, "run_once": True}, *tasks, become=False
    )
    # The process that releases the leases outlives the playbook, and needs the project.
    return played(playbook, *HOSTS, project=folder / name)


def given_back(file: Path) -> Lease:
    """Return the lease once it is released, as it is after the end of a playbook."""
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
    file.write_text(json.dumps(vars(Lease("a", "ada@desk\x1b[2J (deploy.yml)", now - 5, now + 9000))))
    return file


def test_a_second_playbook_is_refused_with_the_holder_of_the_lease_and_check_mode_warns(
    tmp_path: Path, held: Path
) -> None:
    before = held.read_bytes()
    done = acting(tmp_path, held, "train.yml", {"ansible.builtin.debug": {"msg": "it begins"}})
    assert done.returncode == 2
    assert "it begins" not in done.stdout
    assert "Nothing was changed: try again once that has ended." in done.stdout
    assert "\n- node1: ada@desk [2J (deploy.yml) has held it for" in done.stdout
    done = played(tmp_path / "train.yml" / "playbook.yml", *HOSTS, "--check")
    assert done.returncode == 0
    assert "it begins" in done.stdout
    assert "node1: ada@desk [2J (deploy.yml) has held it for" in " ".join(done.stderr.split())
    assert held.read_bytes() == before


def test_the_lease_is_released_when_a_playbook_ends(tmp_path: Path) -> None:
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
    assert given_back(file).holder.endswith(" (deploy.yml)")
    assert host_lease.ARGUMENTS["file"]["default"] == str(FILE)


def test_a_killed_playbook_closes_its_output_at_once_and_its_lease_is_released_later(tmp_path: Path) -> None:
    """The process that renews the lease inherits the descriptors of its caller, among them the output."""
    file, begun, go = tmp_path / "lease", tmp_path / "begun", tmp_path / "go"
    tasks = (
        # By then both hosts have it.
        {"ansible.builtin.file": {"path": str(begun), "state": "touch"}},
        {"ansible.builtin.wait_for": {"path": str(go)}},
        {"ansible.builtin.debug": {"msg": KILL}},
    )
    with ThreadPoolExecutor() as pool:
        done = pool.submit(acting, tmp_path, file, "killed.yml", *tasks)
        while not begun.exists():
            assert not done.done(), done.result().stdout
            time.sleep(0.1)
        with file.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # so that it cannot be given back
            go.touch()
            assert done.result(60).returncode == -9
            assert json.loads(file.read_text())["token"], "the lease cannot be released yet"
    assert given_back(file).holder.endswith(" (killed.yml)")


class NearLeases(Leases):
    """Leases of hosts, as files of a folder; several are requested in a `strange` order."""

    def __init__(self, folder: Path, name: str, strange: str, meeting: threading.Barrier) -> None:
        self.folder, self.name, self.strange, self.meeting = folder, name, strange, meeting
        self._on: dict[str, Any] = dict.fromkeys(sorted(strange))
        self.meetings = 2  # each has one of the two hosts, then each was refused the other's

    def _run_on_each(
        self, state: str, hosts: list[str], told: Mapping[str, Mapping[str, object]] | None = None
    ) -> dict[str, str]:
        problems = {}
        for host in sorted(hosts, key=self.strange.index):
            file, patience = self.folder / host, float(str((told or {}).get(host, {}).get("patience", 0)))
            if state == "taken":
                problems[host] = lease.take(file, Lease(self.name, self.name), patience)
            elif state == "queried":
                problems[host] = read(file).hindrance(self.name, lease.seconds_up())
            else:
                lease.undo(file, self.name)
            if state == "taken" and host in self.strange[:2] and self.meetings:
                self.meetings -= 1
                self.meeting.wait()
        return {host: problem for host, problem in problems.items() if problem}


def test_one_of_two_playbooks_that_wait_for_each_others_hosts_goes_on(tmp_path: Path) -> None:
    meeting = threading.Barrier(2, timeout=20)
    ada, ben = NearLeases(tmp_path, "ada", "321", meeting), NearLeases(tmp_path, "ben", "23", meeting)
    with ThreadPoolExecutor() as pool:
        found = [*pool.map(lambda leases: leases.take({}, 0.3), (ada, ben))]
    assert {} in found
    refused = found[not found.index({})]
    assert refused
    assert all(" has held it for " in problem for problem in refused.values())


def test_playbooks_of_one_command_share_the_lease(tmp_path: Path) -> None:
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
    assert last.token == "", "the last has let others act, for the first as well"
    assert last.holder.endswith(" (train.yml)")
