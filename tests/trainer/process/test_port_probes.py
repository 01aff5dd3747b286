import os
import pwd
import socket
from pathlib import Path

import pytest

from tests.networks import socket_of
from trainer.process.port_probes import stranger_at


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes another user's socket")
def test_another_users_process_at_a_port_is_named_for_any_address() -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket_of(nobody, family) as theirs, socket_of(os.geteuid(), family) as ours:
            theirs.bind((address, 0))
            ours.bind((address, 0))
            theirs.listen()
            ours.listen()
            program = Path("/proc/self/comm").read_text().strip()
            named = stranger_at(theirs.getsockname()[1])
            assert named.startswith(f"user nobody, by {program} (pid {os.getpid()}")
            assert stranger_at(ours.getsockname()[1]) == ""
