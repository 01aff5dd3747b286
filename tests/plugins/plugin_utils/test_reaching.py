"""Why a host gave no answer, from Ansible's result."""

from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure

from plugins.plugin_utils.reaching import answer_or_problem, hindrance
from psfleet.watch.hints import remedies

NO_START = "Module result deserialization failed: No start of json char found"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            {
                "msg": "The module interpreter '/usr/bin/python3' was not found.",
                "stderr": "/bin/sh: 1: /usr/bin/python3: not found\n",
                "rc": 127,
            },
            "found no Python there: /bin/sh: 1: /usr/bin/python3: not found",
        ),
        (
            {
                "msg": NO_START,
                "stderr": 'Traceback (most recent call last):\n  File "x.py", line 50\n'
                "    def run(name: str, /):\n                       ^\nSyntaxError: invalid syntax\n",
                "rc": 1,
            },
            "could not run Python there: SyntaxError: invalid syntax: "
            "psfleet needs Python 3.10 or newer there",
        ),
        (
            {
                "msg": NO_START,
                "stdout": 'Traceback (most recent call last):\n  File "x.py", line 5\n'
                "OSError: [Errno 28] No space left on device\nShared connection to 10.0.0.1 closed.\n",
            },
            "could not run Python there: OSError: [Errno 28] No space left on device",
        ),
        (
            {"msg": NO_START, "stderr": "sudo: a password is required\n", "rc": 1},
            "could not act as root: sudo: a password is required",
        ),
        (
            {"msg": NO_START, "stderr": "/bin/sh: 1: sudo: not found\n", "rc": 127},
            "could not act as root: /bin/sh: 1: sudo: not found",
        ),
    ],
)
def test_the_hindrance_of_a_module_is_named(answer: dict[str, Any], words: str) -> None:
    assert hindrance(answer) == words


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("Host key verification failed.", "`ssh-keyscan ADDRESS >> ~/.ssh/known_hosts`"),
        ("root@192.0.2.1: Permission denied (publickey,password).", "ssh-add"),
        (
            "ssh: connect to host 192.0.2.1 port 22: Connection refused",
            "start the host and its sshd",
        ),
        (
            "ssh: connect to host 192.0.2.1 port 22: No route to host",
            "start the host and its sshd",
        ),
        ("ssh: Could not resolve hostname x: Name or service not known", "set ansible_host in the inventory"),
        ("kex_exchange_identification: read: Connection reset by peer", "correct ansible_host"),
    ],
)
def test_a_failed_login_gets_the_remedy_for_its_reason(said: str, remedy: str) -> None:
    def asked() -> dict[str, Any]:
        raise AnsibleConnectionFailure(f"Failed to connect to the host via ssh: debug\n{said}")

    _, problem = answer_or_problem(asked)
    assert problem == f"could not log in: {said}"
    assert [remedy in told for told in remedies([problem, problem])] == [True]
    assert bool(remedies([problem], otherwise="")) == (remedy != "correct ansible_host")


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("could not act as root: Missing sudo password", "add -K to the command, which asks"),
        ("could not act as root: Incorrect sudo password", "add -K to the command, which asks"),
        ("could not act as root: sudo: a password is required", "add -K to the command, which asks"),
        (
            "could not act as root: bob is not in the sudoers file.",
            "let that user use sudo",
        ),
        (
            "could not act as root: /bin/sh: 1: sudo: not found",
            "install sudo there, or",
        ),
        ("found no Python there: /bin/sh: 1: /usr/bin/python3: not found", "install python3 there, or set"),
    ],
)
def test_a_host_where_the_login_succeeds_gets_a_remedy_for_what_lacks_there(said: str, remedy: str) -> None:
    (told,) = remedies([f"logged in, but {said}"])
    assert told.startswith(remedy)
    assert "ansible_port" not in told
