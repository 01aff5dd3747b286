"""The page `tensorboard`: the event files of runs, served on this machine until Ctrl-C ends the playbook."""

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ansible.utils.display import Display

from psfleet.carry.own_cache import own_cache
from psfleet.deployment.host import PROJECT

from ..actions import HostAction

display = Display()
LOCKS = PROJECT / "roles" / "package_store" / "files"
POLL_SECONDS = 1.0
LINES_KEPT = 5


def show_page(action: HostAction, runs: Sequence[str], port: int, cache_directory: str) -> dict[str, Any]:
    """Serve the folders of these runs; return {} or a failure, also if TensorBoard fails."""
    try:
        own = own_cache(cache_directory) / "tensorboard"
    except (OSError, ValueError) as error:
        return action._failure(str(error))
    python = sys.executable if find_spec("tensorboard") else str(own / "bin" / "python")
    if not Path(python).exists():
        return action._failure(_needed(own))
    if action._task.check_mode:
        return {}
    folder = own.with_name("tensorboard-runs") / str(port)
    if folder.exists():  # left by an earlier playbook that Ctrl-C ended
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    # TensorBoard follows these links, which give each run its name; it also sees new files.
    for run in map(Path, runs):
        (folder / run.name).symlink_to(run)
    return _serve(action, [python, "-m", "tensorboard.main"], folder, port)


def _serve(action: HostAction, command: Sequence[str], folder: Path, port: int) -> dict[str, Any]:
    """Show TensorBoard's output until it ends, or this playbook does."""
    places = ("--host=127.0.0.1", f"--port={port}", f"--logdir={folder}", "--load_fast=false")
    begun = ["setpriv", "--pdeathsig=TERM", *command, *places]
    parent, last_lines = os.getppid(), list[str]()
    with subprocess.Popen(begun, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as server:
        assert server.stderr
        os.set_blocking(server.stderr.fileno(), False)
        while os.getppid() == parent:
            ended = server.poll()
            select.select([server.stderr], [], [], POLL_SECONDS)
            for line in (server.stderr.read() or b"").decode(errors="replace").splitlines():
                last_lines = [*last_lines, line][-LINES_KEPT:]
                if " at http" in line:
                    display.display(line.replace("Press CTRL+C", "Ctrl-C"))
            if ended is not None:
                return action._failure("\n".join([f"TensorBoard has ended, exit code {ended}", *last_lines]))
        server.terminate()
    return {}


def _needed(own: Path) -> str:
    """Return the message with the commands that install TensorBoard from the pinned lock."""
    lock = LOCKS / f"tensorboard-python{sys.version_info.major}.{sys.version_info.minor}.txt"
    return (
        "TensorBoard is not installed on this machine. An environment of its own, with the versions and "
        f"hashes that psfleet pins:\n  {sys.executable} -m venv {own}\n"
        f"  {own}/bin/pip install --require-hashes -r {lock}\nThen type this again"
    )
