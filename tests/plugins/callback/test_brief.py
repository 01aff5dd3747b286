"""The console of ansible.cfg, seen from outside."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.few import few
from tests.psfleet.run.test_host_answers import ANSWERS, WORKER
from tests.repository import HERE, ROOT, played, written_play
from trainer.contract.plan import ClusterPlan, PlannedTask

TASKS = [
    {"name": "Look", "ansible.builtin.command": "true", "changed_when": False},
    {"name": "Skip", "ansible.builtin.command": "true", "when": False},
    {"name": "Change", "ansible.builtin.command": "sleep {{ seconds }}"},
    {"name": "Tell", "ansible.builtin.debug": {"msg": ["first", "second"]}},
    {"name": "Tell of each", "ansible.builtin.debug": {"msg": "{{ item }}"}, "loop": ["one", "two"]},
    {"name": "Break", "ansible.builtin.shell": "echo why >&2; exit 3", "when": "inventory_hostname == 'b'"},
    {"name": "Refuse", "ansible.builtin.fail": {"msg": "it is\nrefused {{ item }}"}, "loop": ["now", "then"]},
]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the output of a playbook, without and with -v."""
    path = written_play(tmp_path_factory.mktemp("brief"), *TASKS)
    # A task of 6 s is a long one.
    return {
        more: played(path, "-i", "a,b,", *HERE, *more.split(), "-e", f"seconds={0 if more else 6}").stdout
        for more in ("", "-v")
    }


def test_only_changes_messages_and_failures_are_shown(shown: dict[str, str]) -> None:
    said, _, recap = shown[""].partition("PLAY RECAP")
    assert said.index("...      Change\n") < said.index("changed  Change")
    # Lines of long tasks depend on timing and are left out.
    lines = [line for line in said.splitlines() if line and not line.startswith("...")]
    assert lines[0] == "changed  Change: a, b"
    assert sorted(lines[1:9]) == sorted(2 * ["first", "second", "one", "two"])
    assert lines[9:13] == [
        "FAILED   Break: b",
        "non-zero return code",
        "cmd: echo why >&2; exit 3",
        "rc: 3",
    ]
    each = [
        ["FAILED   Refuse: a (now)", "it is", "refused now"],
        ["FAILED   Refuse: a (then)", "it is", "refused then"],
    ]
    assert lines[13:] == ["stderr: why", *each[0], *each[1]]
    assert "failed=1" in recap


def test_verbose_output_shows_all_tasks(shown: dict[str, str]) -> None:
    tasks = ("TASK [Look]", "ok: [a]", "skipping: [a]", "changed: [b]", "fatal: [b]: FAILED!")
    for words in ("PLAY [all]", *tasks):
        assert words in shown["-v"]
    # Results are shown only with a higher verbosity.
    looked = shown["-v"].partition("TASK [Look]")[2].partition("TASK [Skip]")[0]
    assert "ok: [a]\n" in looked and "rc:" not in looked


@pytest.mark.parametrize("more", few(["", "-v"], ""))
def test_the_recap_counts_no_failure_for_a_host_that_did_not_fail(tmp_path: Path, more: str) -> None:
    paths = {f"{of}_directory": str(tmp_path) for of in ("configuration", "state", "log")}
    shown = {"psfleet.cluster.show": {"page": "runs", "runs_directory": "runs"}, "run_once": True}
    unreached = {
        name: value
        for name, value in yaml.safe_load((ROOT / "roles/host_look/vars/main.yml").read_text()).items()
        if name == "__host_look_unreached"
    }
    play = written_play(
        tmp_path,
        {**shown, "vars": {"cluster_paths": paths}},
        {"psfleet.cluster.host_facts": {"report_unreached": True}, "register": "__host_look_answer"},
        {"ansible.builtin.import_tasks": f"{ROOT}/roles/host_look/tasks/reached.yml", "vars": unreached},
    )
    # Nothing listens there.
    away = "away ansible_connection=ssh ansible_host=127.0.0.1 ansible_port=1 ansible_ssh_retries=0"
    (tmp_path / "hosts.ini").write_text(f"a\n{away}\nc\n")
    done = played(play, "-i", str(tmp_path / "hosts.ini"), *HERE, *more.split())
    assert "away, user" in done.stdout and done.returncode == 2
    counts = r"^(\S.*?) +: ok=\d+ +changed=0 +unreachable=(\d) +failed=(\d)"
    # Whether this user is root decides the count of the local hosts.
    here = "0" if os.geteuid() == 0 else "1"
    assert re.findall(counts, done.stdout, re.MULTILINE) == [
        ("(whole cluster)", "0", "1"),
        ("a", here, "0"),
        ("away", "1", "0"),
        ("c", here, "0"),
    ]


# A title, all cleared, a sequence of one byte, words from right to left, and hidden ones.
HOSTILE = "\x1b]0;x\x07 \x1b[2J \x9b \u202e \r \x1b[8m"
WRITTEN_OUT = r"\x1b]0;x\x07 \x1b[2J \x9b \u202e \r \x1b[8m"
STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
OF_OURS = re.compile(r"\x1b\[(?:(?:[01];)?3[0-7]|0)m")
PLAN = ClusterPlan("lab", (PlannedTask("ps", 0, "a", "10.1.0.1", 2222),)).to_json()
STATUS = ANSWERS["trainer_tasks"] | {
    "deployed": {"hash": PLAN["hash"]},
    "tasks": [
        WORKER
        | {
            "name": "ps0",
            "job": "ps",
            "index": 0,
            "state": f"failed {HOSTILE}",
            "alive": False,
            "failed": True,
            "exit_code": 70,
            "restarts": 0,
            "pid": 0,
            "run_id": "night",
            "reason": f"reason {HOSTILE}",
            "result": "exit-code",
            "finished": "",
            "log": f"log {HOSTILE}",
            "log_end": "",
            "since_seconds": 1.0,
            "memory_bytes": 1,
            "cpu_seconds": 1.0,
            "last_step": {},
            "last_step_age_seconds": None,
            "sign_of_life_age_seconds": None,
            "progress": {"phase": f"phase {HOSTILE}"},
        }
    ],
}
PS = {"host": "a", "job": "ps", "index": 0}
# It replaces a host's Python: it answers with the lie that the environment names, or else forges the answer
# about tasks, and fails when runs are listed.
LIAR = """#!/bin/sh
cat > "$0.module"
[ "$LIE" ] && exec cat "$0.$LIE"
grep -q trainer_tasks "$0.module" && exec cat "$0.status"
grep -q host_runs "$0.module" && cat "$0.said" >&2 && exit 1
exec {python} "$0.module"
"""
# It replaces ssh, as a host does whose shell prints something and ends like a broken connection.
SILENT = """#!/bin/sh
echo "unreachable $(cat {said})" >&2
exit 255
"""
OF_A_MODULE = {
    "msg": f"msg {HOSTILE}",
    "warnings": [f"warning {HOSTILE}"],
    "exception": f"exception {HOSTILE}",
    "stdout": f"stdout {HOSTILE}",
    "stderr": f"stderr {HOSTILE}",
    "removed": [],
    "freed_bytes": 1,
}
CHANGED = {"changed": True, "diff": {"before": "", "after": f"after {HOSTILE}"}}
LIES = {
    "failed": json.dumps(OF_A_MODULE | {"failed": True}),
    "changed": json.dumps(OF_A_MODULE | CHANGED),
    "prepared": json.dumps(OF_A_MODULE | CHANGED | {"diff": [{"prepared": f"prepared {HOSTILE}"}]}),
    "noisy": f"noise {{\n{json.dumps(OF_A_MODULE)}\nrest {HOSTILE}",
    "wrong": f"wrong {HOSTILE}",
}
CONTENT = {"state": "pruned", "wanted": [], "keep": 1, "paths": {}}


def lying(task: dict[str, object]) -> list[dict[str, object]]:
    """Return the task with each lie of its host, and on a host that is unreachable."""
    kept = task | {"ignore_errors": True, "diff": True}
    told = [kept | {"name": f"Lie {lie}", "environment": {"LIE": lie}} for lie in LIES]
    return [*told, task | {"name": "Connect", "delegate_to": "gone", "ignore_unreachable": True}]


SAID = "{{ said.content | b64decode }}"
# All that these show is from a host. The first ones are safe under any callback.
OF_PSFLEET = [
    {
        "name": "A table",
        "psfleet.cluster.show": {"page": "status", "runs_directory": "runs"},
        "vars": {"cluster_plan": PLAN, "cluster_settings": {"unchosen": ["one", "other"]}},
    },
    {
        "name": "Runs",
        "psfleet.cluster.show": {"page": "runs", "runs_directory": "runs"},
        "ignore_errors": True,
    },
    *lying({"psfleet.cluster.content_release": CONTENT}),
    {
        "name": "A run to copy",
        "psfleet.cluster.decide_run": {
            "state": "stopped",
            "run_id": "another",
            "runs_directory": "/nowhere",
            "found": {"a": {"tasks": [{"name": "ps0", "alive": True, "run_id": HOSTILE}]}},
        },
        "ignore_errors": True,
    },
]
OF_ANSIBLE = [
    {"name": "Read", "ansible.builtin.slurp": {"src": "{{ said_in }}"}, "register": "said"},
    {"name": "A message", "ansible.builtin.debug": {"msg": f"message {SAID}"}},
    {
        "name": "Labels",
        "ansible.builtin.command": "false",
        "loop": [f"item {SAID}"],
        "loop_control": {"label": f"label {SAID}"},
        "ignore_errors": True,
    },
    {"name": f"title {SAID}", "ansible.builtin.command": "true"},
    {
        "name": f"retried {SAID}",
        "ansible.builtin.command": "false",
        "until": False,
        "retries": 1,
        "delay": 0,
        "ignore_errors": True,
    },
    {
        "name": "A file",
        "ansible.builtin.copy": {"content": f"file {SAID}", "dest": "{{ said_in }}.copy"},
        "diff": True,
    },
    *lying({"ansible.builtin.command": "true"}),
    {
        "name": "What is printed",
        "ansible.builtin.command": "cat {{ said_in }} /nowhere",
        "ignore_errors": True,
    },
    {"name": "Errors", "ansible.builtin.fail": {"msg": f"error {SAID}"}, "loop": [1], "ignore_errors": True},
    {"name": "An error", "ansible.builtin.fail": {"msg": f"last {SAID}"}},
]
# What the tasks show, with all that a host said.
SHOWN_OF_PSFLEET = ("msg ", "warning ", "after ", "rest ", "wrong ", "unreachable ", "names the run '")
SHOWN_OF_ANSIBLE = (
    *("(item=label ", "title ", "\x1b[0;32m+file ", "\x1b[0;32m+after ", "prepared "),
    *("exception ", "error ", "last "),
)


def shown_by_lying_hosts(folder: Path, tasks: list[object], callback: str, more: str) -> tuple[str, str]:
    """Run these tasks on a host that lies; return what is shown, in colours, and the log."""
    for name, program in (("liar", LIAR), ("silent", SILENT)):
        (folder / name).write_text(program.format(python=sys.executable, said=folder / "liar.said"))
        (folder / name).chmod(0o755)
    (folder / "liar.said").write_bytes(HOSTILE.encode())
    (folder / "liar.status").write_text(json.dumps(STATUS))
    for lie, answer in LIES.items():
        (folder / f"liar.{lie}").write_bytes(answer.encode())
    values = {"said_in": f"{folder}/liar.said", "cluster_paths": {}, "cluster_tasks": {"a": [PS]}}
    (folder / "values.json").write_text(json.dumps(values))
    gone = f"gone ansible_connection=ssh ansible_ssh_executable={folder}/silent ansible_ssh_retries=0"
    (folder / "hosts.ini").write_text(f"a ansible_connection=local\n{gone}\n")
    done = played(
        written_play(folder, *tasks, hosts="a"),
        *("-i", str(folder / "hosts.ini"), "-e", f"ansible_python_interpreter={folder}/liar"),
        *("-e", f"@{folder}/values.json", *more.split()),
        ANSIBLE_STDOUT_CALLBACK=callback,
        ANSIBLE_NOCOLOR="",
        ANSIBLE_FORCE_COLOR="1",
        ANSIBLE_DISPLAY_TRACEBACK="always",
        ANSIBLE_LOG_PATH=f"{folder}/log",
    )
    return done.stdout + done.stderr, (folder / "log").read_text()


@pytest.mark.parametrize("more", few(["", "-v", "-vvv"], ""))
def test_texts_of_a_host_are_shown_escaped(tmp_path: Path, more: str) -> None:
    tasks = [*OF_PSFLEET, *OF_ANSIBLE]
    shown, logged = shown_by_lying_hosts(tmp_path, tasks, "psfleet.cluster.brief", more)
    for text in (shown, logged):
        assert STEERING.findall(OF_OURS.sub("", text)) == []
    # All of it was shown, in colours.
    for words in (*SHOWN_OF_PSFLEET, *SHOWN_OF_ANSIBLE):
        assert words + WRITTEN_OUT in shown
    assert "\x1b[31mexit code 70 (program): reason" in shown
    assert f"could not act as root: {WRITTEN_OUT}" in shown
    assert r'stdout: "stdout \e]0;x\a \e[2J \x9B \u202e' in logged


@pytest.mark.parametrize("more", few(["", "-vvv"], ""))
def test_texts_of_psfleets_own_modules_are_escaped_under_any_callback(tmp_path: Path, more: str) -> None:
    shown, logged = shown_by_lying_hosts(tmp_path, OF_PSFLEET, "ansible.builtin.default", more)
    for text in (shown, logged):
        assert STEERING.findall(OF_OURS.sub("", text)) == []
    for words in SHOWN_OF_PSFLEET:
        assert f"{words}\\x1b]0;x" in shown.replace("\\\\", "\\")


def test_start_at_task_is_refused(tmp_path: Path) -> None:
    play = written_play(tmp_path, *({"name": name, "ansible.builtin.debug": {}} for name in ("One", "Two")))
    done = played(play, "-i", "a,", *HERE, "--start-at-task", "Two")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--start-at-task is 'Two'; the playbooks rely on what their first tasks check" in done.stderr
