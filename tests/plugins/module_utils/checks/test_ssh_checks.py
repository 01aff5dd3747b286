"""The host check `ssh`, against real sockets."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from plugins.module_utils.checks.ssh_checks import ssh_finding


@contextmanager
def greeting(text: bytes) -> Iterator[int]:
    """Listen at a port of loopback and answer one connection with `text`; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(text)

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_an_sshd_that_answers_is_well() -> None:
    with greeting(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n") as port:
        assert ssh_finding("n1", "127.0.0.1", port) == ("ok", f"sshd answers at 127.0.0.1 port {port}", "")


def test_a_port_without_sshd_is_a_failure_that_names_the_variables() -> None:
    with greeting(b"HTTP/1.1 400 Bad Request\r\n") as port:
        state, found, remedy = ssh_finding("n1", "127.0.0.1", port)
    assert (state, found) == ("failed", f"what answers at 127.0.0.1 port {port} is no sshd")
    assert "set ssh_mesh_port, in host_vars/n1.yml or beside ansible_host of n1" in remedy
    refused = ssh_finding("n1", "127.0.0.1", port)
    assert refused == ("failed", f"127.0.0.1 port {port}: Connection refused", remedy)


@pytest.mark.parametrize("address", ["no-such-host.invalid", "x" * 70 + ".invalid", "[fe80::1]"])
def test_an_address_that_leads_nowhere_is_a_failure(address: str) -> None:
    state, found, remedy = ssh_finding("n1", address, 22)
    assert state == "failed"
    assert found.startswith(f"{address} port 22: ")
    assert "trainer_address" in remedy
