"""Each call of the hook is a play of one playbook; each run folder has several plays, or one."""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from psfleet.run.hook_events import FILE_NAME
from tests.repository import HERE, played

# {run folder: the new states of the run, one play each}
STATES = {
    "seen": ("ended", "judged", "ended"),
    "resumed": ("stopped", "running", "stopped"),
    "no note": ("stopped",),
    "without": ("ended",),
    "checked": ("ended",),
    "failed": ("ended",),
}
WITHOUT_HOOK = (("resumed", 1), ("without", 0))
# The arguments of the hook are the run folder and the number of the play.
HOOK = """import json
import sys
run, play = sys.argv[1:]
with open(f"{run}/heard", "a") as file:
    print(json.dumps([int(play), sys.stdin.read()]), file=file)
if run.endswith("failed"):
    sys.exit("no such room")
"""


class Told(NamedTuple):
    """The folder of the run folders; {run folder: [(play, input of the hook)]}; the output of Ansible."""

    root: Path
    heard: dict[str, list[tuple[int, str]]]
    printed: str


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    root = tmp_path_factory.mktemp("hook")
    hook = root / "a hook.py"
    hook.write_text(HOOK)
    plays = []
    for run, states in STATES.items():
        (root / run).mkdir()
        plays += [play_of(root, run, number, state) for number, state in enumerate(states)]
    (root / "no note" / FILE_NAME).mkdir()
    playbook = root / "playbook.yml"
    playbook.write_text(json.dumps(plays))
    done = played(playbook, "-i", "a,b,", *HERE)
    assert done.returncode == 0, done.stdout + done.stderr
    heard: dict[str, list[tuple[int, str]]] = {run: [] for run in STATES}
    for file in root.glob("*/heard"):
        heard[file.parent.name] = [tuple(json.loads(line)) for line in file.read_text().splitlines()]
    return Told(root, heard, done.stdout)


def play_of(root: Path, run: str, number: int, state: str) -> dict[str, object]:
    """Return a play in which a run, in its own folder, has this new state."""
    hook = f"{sys.executable} '{root}/a hook.py' '{root}/{run}' {number}\n"
    variables = {
        "training_run_hook": "" if (run, number) in WITHOUT_HOOK else hook,
        "__training_evidence_result": {"verdict": "proven"},
        "__training_run_current": {"id": "night", "folder": f"{root}/{run}", "settings": {"secret": "x"}},
        "__training_run_new_state": state,
    }
    role = {"name": "psfleet.cluster.training_run", "tasks_from": "hook"}
    task = {"ansible.builtin.import_role": role, "vars": variables}
    # Two hosts, of which one runs the hook.
    hosts = "all" if run == "seen" else "a"
    return {"hosts": hosts, "gather_facts": False, "check_mode": run == "checked", "tasks": [task]}


def test_the_hook_gets_the_run_as_one_line_of_json(told: Told) -> None:
    folder, [(_, ended), (_, judged)] = str(told.root / "seen"), told.heard["seen"]
    run = {"run_id": "night", "folder": folder}
    for heard, expected in (
        (ended, run | {"state": "ended"}),
        (judged, run | {"state": "judged", "verdict": "proven"}),
    ):
        line, _, rest = heard.partition("\n")
        assert (json.loads(line), rest) == (expected, "")


def test_the_hook_is_told_of_a_state_once_by_all_playbooks_and_hosts(told: Told) -> None:
    assert [play for play, _ in told.heard["seen"]] == [0, 1]


def test_a_run_that_was_resumed_without_a_hook_is_told_of_again(told: Told) -> None:
    assert [play for play, _ in told.heard["resumed"]] == [0, 2]


def test_the_hook_is_told_although_nothing_can_be_noted(told: Told) -> None:
    assert told.heard["no note"]


def test_no_hook_runs_without_a_command_or_in_check_mode(told: Told) -> None:
    assert told.heard["without"] == told.heard["checked"] == []


def test_a_failed_hook_is_reported_and_fails_nothing(told: Told) -> None:
    assert told.heard["failed"]
    assert told.printed.count("training_run_hook, ") == 1, "only the failed one is reported"
    assert f"'{told.root}/failed' 0: exit code 1: no such room\n" in told.printed
