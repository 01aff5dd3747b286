import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail

from plugins.action import collect_run
from plugins.plugin_utils.actions import AnswerError
from tests.plugins.modules.module_run import action_of
from tests.repository import played, written_play

HONEST = "/var/tmp/psfleet-a1_b2c3d.tar.gz"
RUN = {"id": "r1", "settings": {}, "lead": {"name": "worker0"}}
INJECTED = "/x'\"\n!touch /tmp/owned\n"


@pytest.mark.parametrize(
    ("path", "size"),
    [
        (INJECTED, 1),
        ("/etc/shadow", 1),
        (f"{HONEST}\n", 1),
        (f"{HONEST}.gz", 1),
        (None, 1),
        (HONEST, "9" * 5000),
    ],
)
def test_a_host_cannot_make_the_controller_fetch_another_file(path: object, size: object) -> None:
    action = action_of(collect_run.ActionModule, inventory_hostname="node1")
    action._run_module = lambda _step, _arguments: {"path": path, "size": size, "left_out": []}
    action._login = lambda: 1000
    # It has no connection: whatever it fetches or removes ends in an AttributeError.
    answer = action._act({"run": RUN, "tasks": [], "limit_megabytes": 1})
    assert answer["failed"]
    assert answer["msg"].startswith("node1 has packed ")
    assert answer["msg"].endswith("bytes; expected (?:/var/tmp|/dev/shm)/psfleet-[A-Za-z0-9_]{8}\\.tar\\.gz")
    assert answer["msg"].isprintable()


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("1000\n", 1000),
        ("0\n", 0),
        ("", None),
        ("-1", None),
        ("1\n\x1b[2J", None),
        ("9" * 11, None),
    ],
)
def test_the_login_user_is_read_without_becoming_root(said: str, number: int | None) -> None:
    action = action_of(collect_run.ActionModule, inventory_hostname="node1")

    def printed(command: str, *, sudoable: bool) -> dict[str, str]:
        """Return what the host prints, between what its shell prints."""
        ran = command.replace("id -u", shlex.join(["printf", "%s", "0\n" if sudoable else said]))
        noisy = f"echo 4711; {ran}; echo 4712"
        return {
            "stdout": subprocess.run(
                ["bash", "-c", noisy], capture_output=True, text=True, check=True
            ).stdout,
            "stderr": "",
        }

    action._low_level_execute_command = printed
    if number is None:
        with pytest.raises(AnsibleActionFail) as refused:
            action._login()
        assert str(refused.value).isprintable()
    else:
        assert action._login() == number


@pytest.fixture
def larger() -> Iterator[Path]:
    """Return a larger file that a host claims to be an archive of 1000 bytes."""
    path = Path("/var/tmp/psfleet-larger00.tar.gz")
    path.write_bytes(bytes(1_000_000))
    yield path
    path.unlink(missing_ok=True)


def test_a_host_that_sends_too_much_is_named_and_the_others_are_collected(
    tmp_path: Path, larger: Path
) -> None:
    """A host controls its own Python: the Python here returns a forged answer."""
    (tmp_path / "logs" / "r1").mkdir(parents=True)
    (tmp_path / "logs" / "r1" / "ps0.out").write_text("all is well")
    python = tmp_path / "python"
    answer = {"path": str(larger), "size": 1000, "files": 1, "left_out": []}
    python.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{json.dumps(answer)}'\n")
    python.chmod(0o755)
    task = {"name": "ps0", "job": "ps", "index": 0, "host": "good", "role": "ps"}
    run = {"id": "r1", "folder": f"{tmp_path}/run", "settings": {}, "lead": task, "tasks": [task]}
    paths = {"state_directory": f"{tmp_path}/state", "log_directory": f"{tmp_path}/logs"}
    collect = {"run": run, "tasks": [task], "limit_megabytes": 1, "paths": paths}
    tasks = [
        {"psfleet.cluster.collect_run": collect, "register": "found"},
        {"ansible.builtin.debug": {"msg": "{{ inventory_hostname }} {{ found | to_json }}"}},
    ]
    hosts = {"good": {"ansible_python_interpreter": sys.executable}}
    hosts["evil"] = {"ansible_python_interpreter": str(python)}
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": {"ansible_connection": "local"}}}))
    said = played(written_play(tmp_path, *tasks), "-i", inventory).stdout
    found = dict(line.split(" ", 1) for line in said.splitlines() if line.startswith(("good {", "evil {")))
    assert json.loads(found["good"])["files"] == ["logs/ps0.out"], said
    evil = json.loads(found["evil"])
    assert (evil["files"], evil["failed"]) == ([], False)
    assert (
        evil["left_out"][0]
        == "evil: 1000 of the 1000 bytes of its archive came: more bytes arrived than were requested"
    )
    assert (tmp_path / "run" / "logs" / "ps0.out").read_text() == "all is well"
    assert not larger.exists()


@pytest.mark.parametrize("damaged", [True, False])
def test_the_reason_of_a_host_that_packs_nothing_is_noted_without_a_failure(*, damaged: bool) -> None:
    action = action_of(collect_run.ActionModule, inventory_hostname="node1")

    def packs_nothing(_arguments: object, _name: str) -> dict[str, object]:
        if damaged:
            raise AnswerError("no\x1b[2J answer")
        return {"failed": True, "msg": "/var/tmp has 0 bytes free"}

    action._run_module, action._login = packs_nothing, lambda: "ada"
    answer = action._act({"run": RUN, "tasks": [], "limit_megabytes": 1})
    why = "no\\x1b[2J answer" if damaged else "/var/tmp has 0 bytes free"
    assert answer == {"changed": False, "files": [], "left_out": [f"node1: everything: {why}"]}


def test_a_host_that_never_packs_its_files_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of this host never answers; the run of the others goes on to its end."""
    monkeypatch.setattr(collect_run, "PATIENCE_SECONDS", 0.2)
    action = action_of(collect_run.ActionModule, inventory_hostname="node1")

    def never(_step: object, _arguments: object) -> object:
        with suppress(Exception):  # as Ansible does in places
            return subprocess.run(["sleep", "300"], check=False)
        return None

    action._run_module, action._login = never, lambda: 1000
    answer = action._act({"run": RUN, "tasks": [], "limit_megabytes": 1})
    assert answer["left_out"] == ["node1: everything: packing its files took longer than 0 s"]
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
