import os
import pwd
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.trainer.host.networks import socket_of
from trainer.host.check import failed, ok, warning
from trainer.host.port_checks import (
    USUAL_EPHEMERAL,
    Holder,
    PortFacts,
    TaskPort,
    parse_range,
    parse_sockets,
    port_check,
    read_port_facts,
    stranger_at,
    task_ports,
    unit_of,
)

PS, WORKER = TaskPort("ps", 0, 2222), TaskPort("worker", 1, 2223)
# /proc/net/tcp of a Debian 12 host: a listener, a connection to it, and one that no process holds any more.
TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:08AE 00000000:0000 0A 00000000:00000000 00:00000000 00000000   998        0 41234 1
   1: 0B00590A:08AF 0C00590A:A1B2 01 00000000:00000000 00:00000000 00000000   998        0 41235 1
   2: 0B00590A:08AE 0C00590A:A1B3 06 00000000:00000000 03:00000A2C 00000000     0        0 0 3
  cut
   3: 0000:00:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000   0        0 41236
"""
# The control groups of a task, by cgroup v1 in hybrid mode and by cgroup v2.
CGROUP_V1 = (
    "12:pids:/system.slice\n1:name=systemd:/system.slice/system-psfleet\\x2dps.slice/psfleet-ps@0.service\n"
)
CGROUP_V2 = "0::/system.slice/system-psfleet\\x2dps.slice/psfleet-ps@0.service\n"


def test_only_listening_sockets_of_the_requested_ports_are_parsed() -> None:
    assert parse_sockets(TABLE, [2222, 2223]) == {41234: (2222, 998), 41235: (2223, 998)}
    assert parse_sockets(TABLE, [22]) == {41236: (22, 0)}
    assert parse_sockets(TABLE, [23]) == {}
    assert parse_sockets("", [2222]) == {}


def test_the_unit_of_a_process_is_read_from_its_control_groups() -> None:
    assert {unit_of(cgroups) for cgroups in (CGROUP_V1, CGROUP_V2)} == {"psfleet-ps@0.service"}
    assert unit_of("0::/user.slice/user-0.slice/session-3.scope\n") == "session-3.scope"
    assert unit_of("0::/\n") == ""


def test_a_listening_process_is_found_in_proc() -> None:
    with socket.socket() as listener, socket.socket(socket.AF_INET6) as other:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        other.bind(("::1", 0))
        other.listen()
        ports = [listener.getsockname()[1], other.getsockname()[1]]
        found = {holder.port: holder for holder in read_port_facts(ports).holders}
    assert [found[port].pid for port in ports] == [os.getpid()] * 2
    assert found[ports[0]].program == Path("/proc/self/comm").read_text().strip()
    assert read_port_facts(ports).holders == ()


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


def test_the_ephemeral_range_of_this_machine_is_read() -> None:
    first, last = read_port_facts([1]).ephemeral
    assert 0 < first < last < 65536
    assert parse_range("") == USUAL_EPHEMERAL


def test_a_free_port_and_a_port_of_its_own_task_pass() -> None:
    own = Holder(2222, 998, 77, "python", "psfleet-ps@0.service")
    check = port_check([PS, WORKER], PortFacts((own,)), {})
    assert check == ok("2222 is ps0's, 2223 (worker1) is free")
    told = [
        {"job": "ps", "index": 0, "port": "2222", "gpus": []},
        {"job": "worker", "index": 1, "port": 2223},
    ]
    assert task_ports(told) == [PS, WORKER]


@pytest.mark.parametrize("unit", ["psfleet-worker@1.service", "psfleet-server@1.service"])
def test_a_server_may_listen_in_place_of_its_worker(unit: str) -> None:
    assert port_check([WORKER], PortFacts((Holder(2223, 998, 77, "python", unit),)), {}).state == "ok"


def test_a_port_held_by_another_doctor_of_root_counts_as_free() -> None:
    doctor = Holder(2222, 0, 7, "psfleet-doctor", "session-1.scope")
    assert port_check([PS], PortFacts((doctor,)), {}) == ok("2222 (ps0) is free")
    assert port_check([PS], PortFacts((replace(doctor, uid=33),)), {}).state == "failed", (
        "so called by anybody"
    )


def test_an_invisible_process_counts_as_the_task_if_it_has_the_user_of_the_unit() -> None:
    """Without CAP_SYS_PTRACE, root in a container does not see the open files of other users."""
    facts = PortFacts((Holder(2222, 998),))
    assert port_check([PS], facts, {"psfleet-ps@0.service": 998}).state == "ok"
    assert port_check([PS], facts, {"psfleet-ps@0.service": 997}).state == "failed"
    assert port_check([PS], facts, {"psfleet-worker@0.service": 998}).state == "failed"
    seen = PortFacts((Holder(2222, 998, 7, "python", "other.service"),))
    assert port_check([PS], seen, {"psfleet-ps@0.service": 998}).state == "failed"


@pytest.mark.parametrize(
    ("holder", "words"),
    [
        (Holder(2223, 33, 812, "nginx", "nginx.service"), "nginx (pid 812, nginx.service) of user www-data"),
        (
            Holder(2223, 54321, 9, "x", "psfleet-worker@0.service"),
            "x (pid 9, psfleet-worker@0.service) of user without a name",
        ),
        (Holder(2223, 33), "a process of the user with id 33 that cannot be seen from here"),
    ],
)
def test_the_holder_of_a_tasks_port_is_named(holder: Holder, words: str) -> None:
    other = "port 2222 of ps0 is held by nc (pid 9) of user root: nc -lk 2222"
    nc = Holder(2222, 0, 9, "nc", command="nc -lk 2222")
    assert port_check([PS, WORKER], PortFacts((holder, nc)), {}) == failed(
        f"{other}; port 2223 of worker1 is held by {words}",
        "stop that program, or give the host's tasks other ports: trainer_base_port, or trainer_ps_port, "
        "trainer_worker_port, in host_vars of this host",
    )


def test_a_port_in_the_ephemeral_range_gets_a_warning() -> None:
    task, last = TaskPort("ps", 0, 32768), TaskPort("ps", 1, 60999)
    assert port_check([task, WORKER, last], PortFacts(()), {}) == warning(
        "port 32768 of ps0, port 60999 of ps1: any connection may take a port from 32768 to 60999 on this "
        "host",
        "set trainer_base_port below 32768, or keep the ports with sysctl "
        "net.ipv4.ip_local_reserved_ports=32768,60999",
    )
    for reserved in ("32768", "8080,32760-32768", "32768-32770"):
        assert port_check([task], PortFacts((), reserved=reserved), {}).state == "ok"
    assert port_check([task], PortFacts((), reserved="32769-40010,9"), {}).state == "warning"


COMMAND = f"python -m {'x' * 87}..."


def test_unreadable_and_vanished_processes_in_proc_are_skipped(tmp_path: Path) -> None:
    """In this /proc one process has vanished; the descriptors of another cannot be read."""
    own, ip = f"proc/{os.getpid()}", "proc/sys/net/ipv4"
    texts = {
        "proc/net/tcp": TABLE,
        f"{own}/comm": f"{Path(sys.executable).name}\n",
        f"{own}/cgroup": CGROUP_V2,
        f"{own}/cmdline": f"python\0-m\0{'x' * 200}\0",
    }
    texts |= {f"{ip}/ip_local_port_range": "1024\t65000\n", f"{ip}/ip_local_reserved_ports": "8080,9148\n"}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for folder in ("proc/9", f"{own}/fd"):
        (tmp_path / folder).mkdir()
    (tmp_path / own / "fd" / "3").symlink_to("socket:[41234]")
    (tmp_path / own / "fd" / "4").symlink_to("/dev/null")
    holder = Holder(2222, 998, os.getpid(), Path(sys.executable).name, "psfleet-ps@0.service", COMMAND)
    facts = read_port_facts([2222, 2223], tmp_path)
    assert facts == PortFacts((holder, Holder(2223, 998)), (1024, 65000), "8080,9148")
