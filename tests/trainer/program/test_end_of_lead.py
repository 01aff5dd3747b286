"""How long the lead of a program, after its own end, waits for the other workers."""

import contextlib
import json
import socket
import threading
from pathlib import Path

import pytest

from tests.trainer.ports import free_ports
from tests.trainer.program.launched import Tasks, program
from trainer.contract.exit_codes import FINISHED, STOPPED
from trainer.process.flags import parse
from trainer.process.lives import Lives
from trainer.program import launcher

LISTEN = """
    import itertools, json, os, pathlib, socket
    task = json.loads(os.environ["TF_CONFIG"])
    lead = {"type": "chief" if "chief" in task["cluster"] else "worker", "index": 0}
    if task["task"] != lead:
        host, port = task["cluster"]["worker"][task["task"]["index"]].split(":")
        server = socket.create_server((host, int(port)))
        pathlib.Path("here").touch()
        for knocks in itertools.count(1):
            server.accept()
            pathlib.Path(f"knock{knocks}").touch()
"""


def test_the_lead_waits_for_the_other_workers_and_can_be_stopped_meanwhile(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path, LISTEN), worker=2) as tasks:
        tasks.start("worker1")
        tasks.until((tasks.directory("worker1") / "here").exists, "worker 1")
        tasks.start("worker0")
        tasks.until(lambda: tasks.progress("worker0").get("phase") == "ending", "the lead's end")
        tasks.until((tasks.directory("worker1") / "knock2").exists, "the lead to look again")
        assert tasks.processes["worker0"].poll() is None
        address = tasks.cluster["worker"][1]
        missing = {"task": "worker1", "address": address, "reason": "its port still answers"}
        assert tasks.progress("worker0")["missing"] == [missing]
        assert tasks.stop("worker0") == {"worker0": STOPPED}
        assert tasks.progress("worker0")["phase"] == "stopped"
        tasks.start("worker0")
        tasks.until(lambda: tasks.progress("worker0").get("phase") == "ending", "the end of the next lead")
        assert tasks.stop("worker1") == {"worker1": STOPPED}
        assert tasks.wait("worker0") == {"worker0": FINISHED}
        assert (tasks.progress("worker0")["phase"], tasks.progress("worker0")["missing"]) == ("finished", [])
        assert tasks.progress("worker1") == {}


def test_the_lead_waits_until_its_deadline_and_names_the_usual_causes(
    tmp_path: Path,
) -> None:
    with Tasks(tmp_path, program(tmp_path, LISTEN), worker=2) as tasks:
        tasks.end_deadline_minutes = 0.0
        tasks.start("worker1")
        tasks.until((tasks.directory("worker1") / "here").exists, "worker 1")
        tasks.start("worker0")
        assert tasks.wait("worker0") == {"worker0": FINISHED}
        assert tasks.processes["worker1"].poll() is None
        said = "worker1 did not end within trainer_program_end_deadline_minutes: it trains, sleeps, hangs or"
        assert said in tasks.output("worker0")


def test_the_lead_does_not_wait_for_a_host_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as stack:
        hosts = [f"127.0.0.1:{free_ports(1)[0]}"]
        # A connection to a port with a full queue gets no answer, as from a host that is off.
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(2):
            knock = stack.enter_context(socket.socket())
            knock.setblocking(False)
            knock.connect_ex(silent.getsockname())
        hosts.append(f"127.0.0.1:{silent.getsockname()[1]}")
        for name in ("_FIRST_WAIT_SECONDS", "_LONGEST_WAIT_SECONDS", "_PAUSE_SECONDS"):
            monkeypatch.setattr(launcher, name, 0.1)
        task = {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": 0}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(task))
        told: list[object] = []
        monkeypatch.setattr(launcher, "update_progress", lambda _directory, changes: told.append(changes))
        file = program(tmp_path, LISTEN)
        content = {"release": "c0ffee", "file": str(file), "arguments": [], "flags": False, "observed": False}
        (tmp_path / "program.json").write_text(json.dumps(content))
        given = [f"--program={tmp_path / 'program.json'}", f"--run_directory={tmp_path}"]
        options = parse(["--job_name=worker", "--task_index=0", f"--worker_hosts={','.join(hosts)}", *given])
        assert launcher._Launcher(options, threading.Event(), Lives(None, "worker0")).run() == FINISHED
        gone = {"task": "worker1", "address": hosts[1], "reason": "no answer within 1 s"}
        assert told.count({"run_id": "", "phase": "ending", "missing": [gone]}) == 4
        assert told[-1] == {"run_id": "", "phase": "finished", "reason": "", "missing": []}


def test_the_lead_chief0_waits_for_a_worker_that_is_still_ending(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path, LISTEN), chief=1, worker=1) as tasks:
        tasks.flags = False
        tasks.start("worker0")
        tasks.until((tasks.directory("worker0") / "here").exists, "worker 0")
        tasks.start("chief0")
        tasks.until(lambda: tasks.progress("chief0").get("phase") == "ending", "the chief's end")
        missing = tasks.progress("chief0")["missing"]
        assert isinstance(missing, list)
        assert [entry["task"] for entry in missing] == ["worker0"]
        assert tasks.processes["chief0"].poll() is None
        assert tasks.stop("worker0") == {"worker0": STOPPED}
        assert tasks.wait("chief0") == {"chief0": FINISHED}
        assert tasks.progress("chief0")["phase"] == "finished"


def test_the_lead_chief0_waits_only_a_while_for_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as worker:
        chief = f"127.0.0.1:{free_ports(1)[0]}"
        cluster = {"chief": [chief], "worker": [f"127.0.0.1:{worker.getsockname()[1]}"]}
        monkeypatch.setenv(
            "TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})
        )
        monkeypatch.setattr(launcher, "_WORKERS_OF_CHIEF_SECONDS", 0.5)
        told: list[str] = []
        monkeypatch.setattr(launcher, "say", told.append)
        file = program(tmp_path, LISTEN)
        content = {"release": "c0ffee", "file": str(file), "arguments": [], "flags": False, "observed": False}
        (tmp_path / "program.json").write_text(json.dumps(content))
        given = [f"--program={tmp_path / 'program.json'}", f"--run_directory={tmp_path}"]
        given += [f"--worker_hosts={cluster['worker'][0]}"]
        options = parse(["--job_name=chief", "--task_index=0", *given])
        assert launcher._Launcher(options, threading.Event(), Lives(None, "chief0")).run() == FINISHED
        assert any(text.startswith("worker0 did not end within 0.5 s") for text in told)
