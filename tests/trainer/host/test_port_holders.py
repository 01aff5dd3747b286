import os
import socket
import sys
from pathlib import Path

from trainer.host.port_holders import Holder, parse_sockets, read_holders, unit_of

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
COMMAND = f"python -m {'x' * 87}..."


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
        found = {holder.port: holder for holder in read_holders(ports)}
    assert [found[port].pid for port in ports] == [os.getpid()] * 2
    assert found[ports[0]].program == Path("/proc/self/comm").read_text().strip()
    assert read_holders(ports) == ()


def test_unreadable_and_vanished_processes_in_proc_are_skipped(tmp_path: Path) -> None:
    """In this /proc one process has vanished; the descriptors of another cannot be read."""
    own = f"proc/{os.getpid()}"
    texts = {
        "proc/net/tcp": TABLE,
        f"{own}/comm": f"{Path(sys.executable).name}\n",
        f"{own}/cgroup": CGROUP_V2,
        f"{own}/cmdline": f"python\0-m\0{'x' * 200}\0",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for folder in ("proc/9", f"{own}/fd"):
        (tmp_path / folder).mkdir()
    (tmp_path / own / "fd" / "3").symlink_to("socket:[41234]")
    (tmp_path / own / "fd" / "4").symlink_to("/dev/null")
    holder = Holder(2222, 998, os.getpid(), Path(sys.executable).name, "psfleet-ps@0.service", COMMAND)
    assert read_holders([2222, 2223], tmp_path) == (holder, Holder(2223, 998))
