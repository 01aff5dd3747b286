"""Proves that an account of this host can log in by SSH, after sshd has read its new files.

It does nothing if nothing has changed since the last proof: neither `files`, nor other files of sshd's, nor
sshd's process. Check mode does not log in. If the content of `admits` has changed, everything that the
account runs here is ended, because the person who started it may no longer be admitted.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..ended_account import end_all, in_words, processes_of
from ..host.safe_directory import opened, write
from ..host.ssh_checks import sshd_remedy
from ..host.task_traces import bytes_of
from ..host.task_units import systemctl
from ..host.wording import first_of
from ..step import Step

OPTIONS = {
    "service": {"required": True, "description": "systemd service of sshd."},
    "directory": {"type": "path", "required": True, "description": "What sshd reads beside sshd_config."},
    "login": {"type": "list", "elements": "str", "required": True, "description": "The command line."},
    "files": {"type": "list", "elements": "path", "required": True, "description": "Files of sshd."},
    "admits": {
        "type": "list",
        "elements": "path",
        "required": True,
        "description": "Files that list who may log in.",
    },
    "proven": {"type": "path", "required": True, "description": "File of the last proof."},
    "user": {"required": True, "description": "The account, for messages."},
    "host": {"required": True, "description": "The host's name, for messages."},
    "port": {"type": "int", "required": True, "description": "The port that the login uses, for messages."},
}

RETURN = r"""
proven: {returned: always, type: bool, description: Whether this step proved it.}
"""

# A reload returns before sshd has read its files and listens again.
TRIES = 5
SECONDS_TO_ANSWER = 60
MOST_NAMED = 5


def read_by_sshd(files: Iterable[Path], directory: Path) -> list[Path]:
    """Return the files that decide who may log in; sshd_config lies beside the directory."""
    return [*files, directory.parent / "sshd_config", *sorted(directory.glob("*.conf"))]


def state_of(paths: Iterable[Path], admits: Iterable[Path], process: str) -> dict[str, Any]:
    """Return a state that changes with the files, the content of those in `admits`, and sshd's process."""
    found = {str(path): path.stat() for path in paths if path.exists()}
    files = {path: [each.st_ino, each.st_ctime_ns] for path, each in found.items()}
    admitted = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in admits if path.exists()}
    return {"process": process, "files": files, "admitted": admitted}


def last_proven_state(proven: Path) -> dict[str, Any]:
    """Return the state in which the login was proven last, {} if it never was."""
    with suppress(ValueError):
        state = json.loads(bytes_of(proven))
        return state if isinstance(state, dict) else {}
    return {}


def login_problem(login: Sequence[str]) -> str:
    """Log in, and return why that failed, "" if it succeeded."""
    deadline, null, pipe = time.monotonic() + SECONDS_TO_ANSWER, subprocess.DEVNULL, subprocess.PIPE
    for attempt in range(TRIES):
        time.sleep(min(attempt, 1))
        with subprocess.Popen(
            login, stdin=null, stdout=null, stderr=pipe, text=True, start_new_session=True
        ) as process:
            try:
                _, complaint = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # ends runuser, and ssh, which runuser started
                return f"no answer within {SECONDS_TO_ANSWER} s"
        if not process.returncode:
            return ""
    return complaint.strip().rpartition("\n")[2] or "no answer"


def remedy_of(problem: str, values: Mapping[str, Any]) -> str:
    """Return the remedy for a failed login; `values` are the step's."""
    no_sshd = sshd_remedy(values["host"], values["port"])
    if problem.startswith("ssh: "):  # it has no connection
        return f"No sshd answers there: {no_sshd}."
    of_sshd = (
        "If the host's own sshd_config limits who may log in (AllowUsers, AllowGroups, DenyUsers) or does "
        f"not include\n{values['directory']}/*.conf, let {values['user']} in there. "
        f"`journalctl --unit={values['service']}` says what sshd objected to."
    )
    if "Permission denied" in problem:
        return of_sshd
    return f"{of_sshd}\nIf something else answers there than this host's sshd: {no_sshd}."


def running_of(user: str) -> list[str]:
    """Return the processes of an account, in words."""
    return in_words(processes_of(pwd.getpwnam(user).pw_uid))


def end_of(user: str, running: Sequence[str]) -> list[str]:
    """End everything of an account, and return it in words, with the processes that were `running` before.

    The proving login itself leaves other processes for a moment: sshd's, and the account's `systemd --user`.
    """
    ended = end_all(user, pwd.getpwnam(user).pw_uid)
    return [*(each for each in ended if not each.startswith("process ")), *running]


def run(step: Step) -> None:
    """Take the step."""
    values = step.params
    service, proven = values["service"], Path(values["proven"])
    try:
        paths = read_by_sshd(map(Path, values["files"]), Path(values["directory"]))
        process = systemctl("show", "--property=MainPID", "--value", service).strip()
        state, before = state_of(paths, map(Path, values["admits"]), process), last_proven_state(proven)
        if step.check_mode or before == state:
            step.exit_json(changed=False, proven=False)
        systemctl("reload", service)
        running = running_of(values["user"])
        problem = login_problem(values["login"])
        # This comes last, because sshd admits the old keys until it has read its files.
        ended = [] if before.get("admitted") == state["admitted"] else end_of(values["user"], running)
        if ended:
            step.warn(
                f"{values['host']}: ended the processes of {values['user']}, because the list of keys that "
                f"may log in has changed: {first_of(ended, MOST_NAMED)}"
            )
        if problem:
            step.fail_json(
                msg=f"{values['user']} cannot log in from {values['host']} to itself: {problem}\n"
                + remedy_of(problem, values)
            )
        with opened(proven.parent) as folder:
            write(folder, proven.name, json.dumps(state).encode())
    except (OSError, ValueError, KeyError) as error:
        step.fail_json(msg=str(error))
    step.exit_json(changed=bool(ended), proven=True)
