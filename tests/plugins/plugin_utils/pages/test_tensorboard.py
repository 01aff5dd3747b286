"""TensorBoard on this machine: how it is started, what it prints, and the advice if it is missing."""

import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any
from wsgiref.simple_server import make_server

import pytest

from plugins.action.show import ActionModule
from plugins.plugin_utils.pages import tensorboard
from plugins.plugin_utils.tensorboard_server import guarded
from tests.plugins.modules.module_run import action_of
from tests.repository import ROOT

# It replaces TensorBoard, which the tests' environment lacks: it prints its arguments and folders, and ends.
STAND_IN = """#!/bin/sh
echo "said $*" >&2
cd $(echo "$*" | sed 's/.*--logdir=//')
for file in $(find * -type l); do echo "$file is $(readlink $file)" >&2; done
echo "TensorBoard 2.21.0 at http://127.0.0.1:6007/secret/ (Ctrl-C to quit)" >&2
exit 3
"""


def acted(cache: Path, *runs: Path, check: bool = False) -> dict[str, Any]:
    action = action_of(ActionModule, check=check)
    arguments = {
        "page": "tensorboard",
        "runs": [str(run) for run in runs],
        "port": 6007,
        "cache_directory": str(cache),
    }
    answer: dict[str, Any] = action._act(arguments)
    return answer


def test_without_tensorboard_the_commands_that_install_the_pinned_one_are_shown(tmp_path: Path) -> None:
    message = acted(tmp_path)["msg"]
    assert f"\n  {sys.executable} -m venv {tmp_path}/tensorboard\n" in message
    assert f"\n  {tmp_path}/tensorboard/bin/pip install --require-hashes -r " in message
    lock = Path(message.partition(" -r ")[2].split()[0])
    assert "tensorboard==" in lock.read_text()


def test_tensorboard_reads_the_event_files_of_the_runs_and_its_end_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(tensorboard.display, "display", shown.append)
    python = tmp_path / "cache" / "tensorboard" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(STAND_IN)
    python.chmod(0o755)
    runs = [tmp_path / "runs" / name for name in ("one", "two")]
    events = [run / "summaries" / "worker0" / "events.out.tfevents.1" for run in runs]
    for file in events:
        file.parent.mkdir(parents=True)
        file.touch()
    (runs[0] / "checkpoints").mkdir()
    (runs[0] / "checkpoints" / "model.ckpt").touch()
    (runs[0] / "a.tfevents.link").symlink_to("/etc/passwd")
    assert acted(tmp_path / "cache", *runs, check=True) == {}
    message = acted(tmp_path / "cache", *runs)["msg"]
    server = ROOT / "plugins" / "plugin_utils" / "tensorboard_server.py"
    folder = tmp_path / "cache" / "tensorboard-runs" / "6007"
    assert message.splitlines()[:2] == [
        "TensorBoard has ended, exit code 3",
        f"said -P {server} --port=6007 --logdir={folder}",
    ]
    linked = [f"{file.relative_to(tmp_path / 'runs')} is {file}" for file in events]
    assert sorted(message.splitlines()[2:4]) == linked, "event files alone, and no link"
    assert len(message.splitlines()) == 5
    assert shown == ["TensorBoard 2.21.0 at http://127.0.0.1:6007/secret/ (Ctrl-C to quit)"]
    assert folder.stat().st_mode & 0o777 == 0o700
    # A later call shows only the requested run, and has not changed the runs.
    message = acted(tmp_path / "cache", runs[1])["msg"]
    assert linked[1] in message
    assert linked[0] not in message
    assert events[0].exists()


def test_event_files_that_come_later_are_shown_too(tmp_path: Path) -> None:
    run, folder = tmp_path / "runs" / "one", tmp_path / "shown"
    for name in ("first.tfevents", "second.tfevents"):
        run.mkdir(parents=True, exist_ok=True)
        (run / name).touch()
        tensorboard.link_events([run], folder)
        assert (folder / "one" / name).resolve() == run / name
    tensorboard.link_events([tmp_path / "removed"], folder)


@pytest.fixture
def port() -> Iterator[int]:
    """Return the port of a server whose application answers all that passes the guard."""

    def application(_: dict[str, Any], start_response: Any) -> list[bytes]:  # noqa: ANN401
        start_response("200 OK", [])
        return [b"curves"]

    with make_server("127.0.0.1", 0, guarded(application, "/secret")) as server:
        serving = Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield server.server_port
        server.shutdown()
        serving.join()


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/secret/", "127.0.0.1:6006", 200),
        ("/secret/data/plugin/scalars/tags", "localhost:6006", 200),
        ("/secret/", "127.0.0.1", 200),
        ("/", "127.0.0.1:6006", 403),
        ("/data/plugin/scalars/tags", "127.0.0.1:6006", 403),
        ("/secre/", "127.0.0.1:6006", 403),
        ("/secreT/", "127.0.0.1:6006", 403),
        ("/s%C3%A9cret/", "127.0.0.1:6006", 403),
        ("/secret/", "elsewhere.example", 403),
        ("/secret/", "elsewhere.example:6006", 403),
        ("/secret/", "127.0.0.1.elsewhere.example:6006", 403),
        ("/secret/", "127.0.0.1:6006.elsewhere.example", 403),
        ("/secret/", "", 403),
    ],
)
def test_only_whoever_knows_the_address_gets_in_and_no_other_site(
    port: int, path: str, host: str, status: int
) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest("GET", path, skip_host=True)
    if host:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == status
    assert (answer.read() == b"curves") == (status == 200)
    connection.close()
