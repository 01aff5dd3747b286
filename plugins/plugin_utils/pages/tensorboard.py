"""The page `tensorboard`: the event files of runs, served on this machine until Ctrl-C ends the playbook.

TensorBoard reads a folder with links to event files only, because it could show other files of a run, too,
such as checkpoints.
"""

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, cast

from psfleet.carry.own_cache import own_cache
from psfleet.watch.terminal import escaping_display

from ..actions import HostAction

display = escaping_display()
LOCKS = Path(__file__).resolve().parents[3] / "roles" / "package_store" / "files"
SERVER = Path(__file__).resolve().parents[3] / "plugins" / "plugin_utils" / "tensorboard_server.py"
POLL_SECONDS = 1.0
LOOK_SECONDS = 5.0
EVENTS = "tfevents"
LINES_KEPT = 5


def show_page(action: HostAction, runs: Sequence[str], port: int, cache_directory: str) -> dict[str, Any]:
    """Serve the event files of `runs`, folders on the controller, with TensorBoard, until Ctrl-C.

    Return a failure, also in check mode, if `cache_directory` cannot be used or TensorBoard is not installed;
    then, in check mode, {} at once. Return {} after Ctrl-C, and a failure if TensorBoard ends by itself.
    """
    try:
        own = own_cache(cache_directory) / "tensorboard"
    except (OSError, ValueError) as error:
        return action._failure(str(error))
    python = sys.executable if find_spec("tensorboard") else str(own / "bin" / "python")
    if not Path(python).exists():
        return action._failure(_needed(own))
    if action.check_mode:
        return {}
    folder = own.with_name("tensorboard-runs") / str(port)
    if folder.exists():  # left by an earlier playbook that Ctrl-C ended
        shutil.rmtree(folder)
    folder.mkdir(mode=0o700, parents=True)
    # Beside the server lies a file of the name of its package.
    return _serve(action, [python, "-P", str(SERVER)], folder, list(map(Path, runs)), port)


def link_events(runs: Sequence[Path], folder: Path) -> None:
    """Make a link in `folder`/<name of the run>/ to each event file of the runs that has no link yet.

    A run's folder that no longer exists is ignored. An event file that is itself a link is left out, because
    it could lead out of the run.
    """
    for run in runs:
        for parent, _, names in os.walk(run):
            for path in (Path(parent, name) for name in names if EVENTS in name):
                link = folder / run.name / path.relative_to(run)
                if not path.is_symlink() and not link.is_symlink():
                    link.parent.mkdir(parents=True, exist_ok=True)
                    link.symlink_to(path)


def _serve(
    action: HostAction, command: Sequence[str], folder: Path, runs: Sequence[Path], port: int
) -> dict[str, Any]:
    """Run TensorBoard (`command`) until it ends, or until this playbook ends, and show its address.

    Return {} if the playbook ended, a failure if TensorBoard ended. New event files get links meanwhile.
    """
    link_events(runs, folder)
    begun = ["setpriv", "--pdeathsig=TERM", *command, f"--port={port}", f"--logdir={folder}"]
    parent, last_lines, looked = os.getppid(), list[str](), time.monotonic()
    with subprocess.Popen(begun, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as server:
        output = cast(IO[bytes], server.stderr)  # it was asked for
        os.set_blocking(output.fileno(), False)
        while os.getppid() == parent:
            ended = server.poll()
            if time.monotonic() > looked + LOOK_SECONDS:
                link_events(runs, folder)
                looked = time.monotonic()
            select.select([output], [], [], POLL_SECONDS)
            for line in (output.read() or b"").decode(errors="replace").splitlines():
                last_lines = [*last_lines, line][-LINES_KEPT:]
                if " at http" in line:
                    display.display(line)
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
