"""The chief's checkpoints reach the evaluator on another host, which refuses what is not allowed."""

import json
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.trainer.ports import free_ports
from tests.trainer.program.launched import Tasks, program
from trainer.contract.exit_codes import FINISHED, STOPPED
from trainer.program import evaluator_checkpoints
from trainer.program.evaluator_checkpoints import MOST_KEPT, Places, Receiver, Sender

RUN = "20260101-test"
WELL = {"run_id": RUN, "place": "run", "folder": "checkpoints", "name": "model.ckpt-1", "files": {"index": 1}}

TRAIN_AND_EVALUATE = """
    import json, os, pathlib, time
    folder = pathlib.Path("checkpoints")
    task = json.loads(os.environ["TF_CONFIG"])
    assert "evaluator" not in task["cluster"]
    if task["task"]["type"] == "chief":
        folder.mkdir()
        for step in (1, 2):
            (folder / f"model.ckpt-{step}.index").write_text(str(step))
            latest = folder.absolute() / f"model.ckpt-{step}"
            (folder / "checkpoint").write_text(f'model_checkpoint_path: "{latest}"')
    else:
        while not (folder / "model.ckpt-2.index").exists() or not (folder / "checkpoint").exists():
            time.sleep(0.1)
        print("evaluated", (folder / "checkpoint").read_text())
        (folder / "eval").mkdir()
"""
SLEEP = """
    import json, os, time
    while json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "evaluator":
        time.sleep(0.1)
"""


def until(done: Callable[[], bool]) -> None:
    """Wait until `done()`, at most 20 s."""
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def receiver(tmp_path: Path) -> int:
    """The port of a receiver for the run in tmp_path / "there"."""
    port = free_ports(1)[0]
    (tmp_path / "there").mkdir()
    Receiver(Places({"run": tmp_path / "there"}, RUN), port, "127.0.0.1")
    return port


def test_each_new_checkpoint_arrives_and_the_oldest_go(tmp_path: Path, receiver: int) -> None:
    saved, arrived = tmp_path / "here/model/sub", tmp_path / "there/model/sub"
    saved.mkdir(parents=True)
    state = arrived / "checkpoint"

    def is_latest(name: str) -> bool:
        return state.exists() and f'model_checkpoint_path: "{name}"\n' in state.read_text()

    sender = Sender(Places({"run": tmp_path / "here"}, RUN), f"127.0.0.1:{receiver}", ["run"])
    for step in range(1, MOST_KEPT + 3):
        name = f"model.ckpt-{step}"
        (saved / f"{name}.data-00000-of-00001").write_bytes(b"d" * 3_000_000)
        (saved / f"{name}.index").write_text(f"index of {step}")
        (saved / "checkpoint").write_text(f'model_checkpoint_path: "/elsewhere/{name}"\n')
        sender.hurry()
        until(partial(is_latest, name))
        assert (arrived / f"{name}.index").read_text() == f"index of {step}"
        assert (arrived / f"{name}.data-00000-of-00001").stat().st_size == 3_000_000
    kept = {f"model.ckpt-{step}.index" for step in range(3, MOST_KEPT + 3)}
    until(lambda: {path.name for path in arrived.glob("*.index")} == kept)
    assert len([*arrived.iterdir()]) == 2 * MOST_KEPT + 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"run_id": "other"}, "it is of another run"),
        ({"place": "etc"}, "its place is none of a task"),
        ({"place": ["run"]}, "its place, folder or name is missing"),
        ({"folder": "../x"}, "'../x' is no path below a directory"),
        ({"folder": "/etc"}, "'/etc' is no path below a directory"),
        ({"folder": "link"}, "link in link is not a directory, or a link that is not root's"),
        ({"folder": "a/b/c/d/e"}, "its folder or name has other characters, or is too deep"),
        ({"folder": "events"}, "its folder is not a program's"),
        ({"name": "../model"}, "its folder or name has other characters, or is too deep"),
        ({"name": ".hidden"}, "its folder or name has other characters, or is too deep"),
        ({"files": {"meta": 1}}, "it has no index, or too many files"),
        ({"files": {"index": 1, "sh": 1}}, "a file has another name or no size"),
        ({"files": {"index": -1}}, "a file has another name or no size"),
        ({"files": {"index": 10**16}}, "no room for 10000000000000000 bytes on the evaluator's disk"),
    ],
)
def test_what_the_chief_may_not_send_is_refused(
    tmp_path: Path, receiver: int, changes: dict[str, object], why: str
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "there/link").symlink_to(tmp_path / "outside")
    with socket.create_connection(("127.0.0.1", receiver)) as line:
        line.sendall(json.dumps(WELL | changes).encode() + b"\n")
        assert line.makefile().read() == f"refused: {why}\n"
    assert {path.name for path in tmp_path.rglob("*")} == {"there", "outside", "link"}


def test_a_checkpoint_that_breaks_off_leaves_nothing(tmp_path: Path, receiver: int) -> None:
    with socket.create_connection(("127.0.0.1", receiver)) as line:
        line.sendall(json.dumps(WELL | {"files": {"index": 10}}).encode() + b"\n")
        assert line.makefile("rb").readline() == b"send\n"
        line.sendall(b"half")
    with socket.create_connection(("127.0.0.1", receiver)) as probe:  # answered after the first
        probe.shutdown(socket.SHUT_WR)
        assert probe.recv(10) == b""
    assert [*(tmp_path / "there/checkpoints").iterdir()] == []


def test_another_host_than_the_chiefs_is_refused(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    Receiver(Places({"run": tmp_path}, RUN), port, "192.0.2.1")
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(json.dumps(WELL).encode() + b"\n")
        assert "127.0.0.1 is not the chief's host" in line.makefile().read()


def test_a_folder_that_no_program_has_is_not_searched(tmp_path: Path) -> None:
    for folder in ("events", "model"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "checkpoint").write_text('model_checkpoint_path: "m-1"')
        (tmp_path / folder / "m-1.index").write_text("i")
    places = Places({"run": tmp_path}, RUN)
    found = [checkpoint.shown for checkpoint in evaluator_checkpoints.saved_checkpoints(places, ["run"])]
    assert found == ["model/m-1"]


def listens(port: int) -> bool:
    """Return whether something accepts connections at a port of this machine."""
    with socket.socket() as knock:
        return knock.connect_ex(("127.0.0.1", port)) == 0


def test_the_chief_waits_for_the_evaluator_which_gets_the_last_checkpoint(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path, TRAIN_AND_EVALUATE), chief=1, worker=1) as tasks:
        port = free_ports(1)[0]
        # By their addresses, chief and evaluator are on different hosts.
        tasks.environment["HOME"] = str(tmp_path)  # the /tmp of this machine is not the tasks' own
        tasks.environment["PSFLEET_EVALUATOR_ADDRESS"] = f"localhost:{port}"
        tasks.flags = False
        tasks.start("evaluator0")
        tasks.until(lambda: listens(port), "the evaluator")
        tasks.start("chief0")
        assert tasks.wait("chief0", "evaluator0") == {"chief0": FINISHED, "evaluator0": FINISHED}
        assert 'evaluated model_checkpoint_path: "model.ckpt-2"' in tasks.output("evaluator0")
        assert tasks.progress("chief0")["phase"] == "finished"
        left = {path.name for path in (tasks.directory("evaluator0") / "checkpoints").iterdir()}
        assert left == {"eval"}, "only the chief's host has checkpoints, which are collected from there"
        assert (tasks.directory("chief0") / "checkpoints/model.ckpt-2.index").exists()


def test_the_chief_waits_for_the_evaluator_until_the_deadline(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path, SLEEP), chief=1, worker=1) as tasks:
        port = free_ports(1)[0]
        tasks.environment["HOME"] = str(tmp_path)  # the /tmp of this machine is not the tasks' own
        tasks.environment["PSFLEET_EVALUATOR_ADDRESS"] = f"127.0.0.1:{port}"
        tasks.end_deadline_minutes = 0.0
        tasks.flags = False
        tasks.start("evaluator0")
        tasks.until(lambda: listens(port), "the evaluator")
        tasks.start("chief0")
        assert tasks.wait("chief0") == {"chief0": FINISHED}
        assert "evaluator0 did not end within trainer_program_end_deadline_minutes" in tasks.output("chief0")
        assert tasks.stop("evaluator0") == {"evaluator0": STOPPED}
