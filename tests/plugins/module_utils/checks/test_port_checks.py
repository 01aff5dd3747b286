from dataclasses import replace
from pathlib import Path

import pytest

from plugins.module_utils.checks.port_checks import (
    USUAL_EPHEMERAL,
    PortFacts,
    TaskPort,
    parse_range,
    ports_finding,
    read_port_facts,
    task_ports,
)
from plugins.module_utils.host.check import failed, ok, warning
from plugins.module_utils.host.port_holders import Holder

PS, WORKER = TaskPort("ps", 0, 2222), TaskPort("worker", 1, 2223)


def test_the_ephemeral_range_of_this_machine_is_read() -> None:
    first, last = read_port_facts([1]).ephemeral
    assert 0 < first < last < 65536
    assert parse_range("") == USUAL_EPHEMERAL


def test_the_ephemeral_and_the_reserved_ports_of_a_host_are_read(tmp_path: Path) -> None:
    ip = tmp_path / "proc/sys/net/ipv4"
    ip.mkdir(parents=True)
    (ip / "ip_local_port_range").write_text("1024\t65000\n")
    (ip / "ip_local_reserved_ports").write_text("8080,9148\n")
    assert read_port_facts([2222], tmp_path) == PortFacts((), (1024, 65000), "8080,9148")


def test_a_free_port_and_a_port_of_its_own_task_pass() -> None:
    own = Holder(2222, 998, 77, "python", "psfleet-ps@0.service")
    check = ports_finding([PS, WORKER], PortFacts((own,)), {})
    assert check == ok("2222 is ps0's, 2223 (worker1) is free")
    told = [
        {"job": "ps", "index": 0, "port": "2222", "gpus": []},
        {"job": "worker", "index": 1, "port": 2223},
    ]
    assert task_ports(told) == [PS, WORKER]


@pytest.mark.parametrize("unit", ["psfleet-worker@1.service", "psfleet-server@1.service"])
def test_a_server_may_listen_in_place_of_its_worker(unit: str) -> None:
    assert ports_finding([WORKER], PortFacts((Holder(2223, 998, 77, "python", unit),)), {}).state == "ok"


def test_a_port_held_by_another_doctor_of_root_counts_as_free() -> None:
    doctor = Holder(2222, 0, 7, "psfleet-doctor", "session-1.scope")
    assert ports_finding([PS], PortFacts((doctor,)), {}) == ok("2222 (ps0) is free")
    assert ports_finding([PS], PortFacts((replace(doctor, uid=33),)), {}).state == "failed", (
        "so called by anybody"
    )


def test_an_invisible_process_counts_as_the_task_if_it_has_the_user_of_the_unit() -> None:
    """Without CAP_SYS_PTRACE, root in a container does not see the open files of other users."""
    facts = PortFacts((Holder(2222, 998),))
    assert ports_finding([PS], facts, {"psfleet-ps@0.service": 998}).state == "ok"
    assert ports_finding([PS], facts, {"psfleet-ps@0.service": 997}).state == "failed"
    assert ports_finding([PS], facts, {"psfleet-worker@0.service": 998}).state == "failed"
    seen = PortFacts((Holder(2222, 998, 7, "python", "other.service"),))
    assert ports_finding([PS], seen, {"psfleet-ps@0.service": 998}).state == "failed"


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
    assert ports_finding([PS, WORKER], PortFacts((holder, nc)), {}) == failed(
        f"{other}; port 2223 of worker1 is held by {words}",
        "stop that program, or give the host's tasks other ports: trainer_base_port, or trainer_ps_port, "
        "trainer_worker_port, in host_vars of this host",
    )


def test_a_port_in_the_ephemeral_range_gets_a_warning() -> None:
    task, last = TaskPort("ps", 0, 32768), TaskPort("ps", 1, 60999)
    assert ports_finding([task, WORKER, last], PortFacts(()), {}) == warning(
        "port 32768 of ps0, port 60999 of ps1: any connection may take a port from 32768 to 60999 on this "
        "host",
        "set trainer_base_port below 32768, or keep the ports with sysctl "
        "net.ipv4.ip_local_reserved_ports=32768,60999",
    )
    for reserved in ("32768", "8080,32760-32768", "32768-32770"):
        assert ports_finding([task], PortFacts((), reserved=reserved), {}).state == "ok"
    assert ports_finding([task], PortFacts((), reserved="32769-40010,9"), {}).state == "warning"
