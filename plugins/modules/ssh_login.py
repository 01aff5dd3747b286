"""Proves that an account of this host can log in by SSH, after sshd has read its new files.

It does nothing if nothing has changed since the last proof: neither `files`, nor other files of sshd, nor
sshd's process. Check mode does not log in. If the content of `admits` has changed, everything that the
account runs here is ended, because the person who started it may no longer be admitted.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_login
short_description: Proves that an account of this host can log in by SSH, after sshd has read its new files
description:
  - 'It does nothing if nothing has changed since the last proof: neither V(files), nor other files
    of sshd, nor sshd''s process.'
  - Check mode does not log in.
  - If the content of V(admits) has changed, everything that the account runs here is ended, because
    the person who started it may no longer be admitted.
author: psfleet (@psfleet)
options:
  service:
    description: systemd service of sshd.
    type: str
    required: true
  directory:
    description: The directory of the files that sshd reads in addition to sshd_config.
    type: path
    required: true
  login:
    description: The command line that logs in.
    type: list
    elements: str
    required: true
  files:
    description: The files that were written for the login.
    type: list
    elements: path
    required: true
  admits:
    description: Files that list who may log in.
    type: list
    elements: path
    required: true
  proven:
    description: The file that has the last proof.
    type: path
    required: true
  user:
    description: The account, for messages.
    type: str
    required: true
  host:
    description: The host's name, for messages.
    type: str
    required: true
  port:
    description: The port that the login uses, for messages.
    type: int
    required: true
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: Prove that the login works
  psfleet.cluster.ssh_login:
    service: ssh
    directory: /etc/ssh/sshd_config.d
    login: [runuser, --user, psfleet-ssh, --, ssh, -n, -o, BatchMode=yes, node1, hostname]
    files: [/etc/psfleet/ssh/host-cert.pub]
    admits: [/etc/psfleet/ssh/principals]
    proven: /etc/psfleet/ssh/proven
    user: psfleet-ssh
    host: node1
    port: 22
"""

RETURN = r"""
proven:
  returned: always
  type: bool
  description: Whether this call proved the login; false if the last proof still holds, and in check mode.
"""

import json
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.checks.ssh_checks import sshd_remedy
from ..module_utils.ended_account import end_all, in_words, processes_of
from ..module_utils.host.safe_directory import opened, write
from ..module_utils.host.task_units import systemctl
from ..module_utils.host.wording import first_of
from ..module_utils.login_proof import last_proof, proof_of
from ..module_utils.module import make_module

ARGUMENTS: dict[str, Any] = {
    "service": {"required": True},
    "directory": {"type": "path", "required": True},
    "login": {"type": "list", "elements": "str", "required": True},
    "files": {"type": "list", "elements": "path", "required": True},
    "admits": {"type": "list", "elements": "path", "required": True},
    "proven": {"type": "path", "required": True},
    "user": {"required": True},
    "host": {"required": True},
    "port": {"type": "int", "required": True},
}


# A reload returns before sshd has read its files and listens again.
TRIES = 5
SECONDS_TO_ANSWER = 60
MOST_NAMED = 5


def login_problem(login: Sequence[str]) -> str:
    """Log in by the command `login`; return "" after a success, or in words why it failed.

    It tries up to TRIES times, and gives up after a minute. The text is the last line of the last error.
    """
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
    """Return what to do about a failed login, as sentences.

    `problem` is what `login_problem` returned: without a connection ("ssh: ..") the advice is about a missing
    sshd, after "Permission denied" about who may log in, else about both. `values` are the module's arguments.
    """
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
    """Return a text such as "process 812 (python3)" for each process of an account.

    Raises KeyError if there is no such account.
    """
    return in_words(processes_of(pwd.getpwnam(user).pw_uid))


def end_of(user: str, running: Sequence[str]) -> list[str]:
    """End everything that an account runs or has scheduled; return the paths of removed files, and `running`.

    `running` are the processes that `running_of` returned before the login. Other ended processes are not
    named, because the proving login itself leaves some for a moment: sshd's, and `systemd --user`.
    """
    ended = end_all(user, pwd.getpwnam(user).pw_uid)
    return [*(each for each in ended if not each.startswith("process ")), *running]


def run(module: AnsibleModule) -> None:
    """Reload sshd and log in, unless nothing has changed since the last proof; exit with the answer.

    If the list of keys that may log in has changed, everything that the account runs is ended. Fails if the
    login fails. In check mode, nothing is done.
    """
    values = module.params
    service, proven = values["service"], Path(values["proven"])
    try:
        proof, before = proof_of(values), last_proof(proven)
        if module.check_mode or before == proof:
            module.exit_json(changed=False, proven=False)
        systemctl("reload", service)
        running = running_of(values["user"])
        problem = login_problem(values["login"])
        # This comes last, because sshd admits the old keys until it has read its files.
        ended = [] if before.get("admitted") == proof["admitted"] else end_of(values["user"], running)
        if ended:
            module.warn(
                f"{values['host']}: ended the processes of {values['user']}, because the list of keys that "
                f"may log in has changed: {first_of(ended, MOST_NAMED)}"
            )
        if problem:
            module.fail_json(
                msg=f"{values['user']} cannot log in from {values['host']} to itself: {problem}\n"
                + remedy_of(problem, values)
            )
        with opened(proven.parent) as folder:
            write(folder, proven.name, json.dumps(proof).encode())
    except (OSError, ValueError, KeyError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(ended), proven=True)


def main() -> None:
    """Run the module with the arguments from Ansible; exit with its answer, or with a failure."""
    run(make_module(ARGUMENTS))


if __name__ == "__main__":
    main()
