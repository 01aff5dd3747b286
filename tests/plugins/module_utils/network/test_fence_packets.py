"""The fence as the kernel holds it: real rules of nft, real connections of hosts and users, IPv4 and IPv6."""

import os
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from plugins.module_utils.network import fence_state
from plugins.module_utils.network.fence_rules import Endpoint
from tests.networks import SECONDS, Networks
from tests.plugins.module_utils.network.fenced_networks import (
    FENCE,
    HERE,
    HIDDEN,
    IDLE,
    OTHER,
    OWN,
    PEER,
    PORT,
    ROOT,
    SOMEBODY,
    SSH,
    STRANGER,
    TASKS,
    put_up,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes networks")


def test_without_a_fence_all_tested_ports_are_open(networks: Networks) -> None:
    networks.run("nft", "flush", "ruleset", at="here")
    for address in HERE:
        assert networks.tried("stranger", address, PORT) == "open"
        assert networks.tried("stranger", address, HIDDEN) == "open"
    for address in (*OWN, *PEER):
        assert networks.tried("here", address, PORT, SOMEBODY) == "open"
    for address in (*PEER, *STRANGER, "127.0.0.1"):
        assert networks.tried("here", address, SSH, TASKS) == "open"


@pytest.mark.parametrize("address", HERE)
def test_only_machines_of_the_plan_reach_a_task(fenced: Networks, address: str) -> None:
    assert fenced.tried("stranger", address, PORT) == "ConnectionRefusedError"
    assert fenced.tried("peer", address, PORT) == "open"
    assert fenced.tried("stranger", address, OTHER) == "open", "not ours to close"


@pytest.mark.parametrize("address", [*OWN, *PEER, "::ffff:10.77.0.2"])
def test_only_root_and_the_tasks_user_reach_a_task_of_their_host(fenced: Networks, address: str) -> None:
    assert fenced.tried("here", address, PORT, SOMEBODY) == "ConnectionRefusedError"
    assert fenced.tried("here", address, PORT, TASKS) == "open"
    assert fenced.tried("here", address, PORT, ROOT) == "open"


def test_refused_connections_are_counted_for_each_task(fenced: Networks) -> None:
    def counts() -> dict[int, int]:
        with fenced.inside("here"):
            return fence_state.refused_connections()

    assert counts() == {PORT: 0, IDLE: 0}
    for address in HERE:
        fenced.tried("stranger", address, PORT)
        fenced.tried("here", address, PORT, SOMEBODY)
    fenced.tried("stranger", HERE[0], IDLE)
    # These connections are allowed, or refused elsewhere: at another port, or on the way to another host.
    fenced.tried("peer", HERE[0], PORT)
    fenced.tried("stranger", HERE[0], OTHER)
    for user in (TASKS, ROOT):
        fenced.tried("here", HERE[0], PORT, user)
    fenced.tried("here", PEER[0], PORT, SOMEBODY)
    fenced.tried("here", STRANGER[0], PORT, TASKS)
    assert counts() == {PORT: 4, IDLE: 1}
    with fenced.inside("here"):
        fence_state.reset_refused_counters()
    assert counts() == {PORT: 0, IDLE: 0}
    fenced.run("nft", "delete", "table", "inet", "psfleet", at="here")
    assert counts() == {}


@pytest.mark.parametrize("address", [*PEER, *STRANGER, "::ffff:10.77.0.3"])
def test_other_users_connect_as_they_do_without_a_fence(fenced: Networks, address: str) -> None:
    for user in (SOMEBODY, ROOT):
        assert fenced.tried("here", address, SSH, user) == "open"
        assert fenced.tried("here", "127.0.0.1", SSH, user) == "open"
    assert fenced.tried("peer", HERE[0], SSH) == "open"


@pytest.mark.parametrize("address", [*STRANGER, *PEER, "::ffff:10.77.0.3", *OWN])
def test_a_task_connects_only_to_tasks_of_the_plan(fenced: Networks, address: str) -> None:
    for port in (SSH, OTHER):
        assert fenced.tried("here", address, port, TASKS) == "ConnectionRefusedError"
    if address in STRANGER:
        assert fenced.tried("here", address, PORT, TASKS) == "ConnectionRefusedError"


@pytest.mark.parametrize("address", [*STRANGER, "127.0.0.1"])
def test_a_task_sends_no_datagrams(fenced: Networks, address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with fenced.inside("here" if address == "127.0.0.1" else "stranger"):
        heard = socket.socket(family, socket.SOCK_DGRAM)
    heard.bind((address, 5353))
    for user, text in ((TASKS, b"tasks"), (ROOT, b"root")):
        with fenced.inside("here", user):
            sender = socket.socket(family, socket.SOCK_DGRAM)
        with sender, suppress(OSError):
            sender.sendto(text, (address, 5353))
    with heard:
        assert heard.recv(9) == b"root"


@pytest.mark.parametrize("address", HERE)
def test_a_task_serves_only_at_its_port_of_the_plan(fenced: Networks, address: str) -> None:
    assert fenced.tried("stranger", address, HIDDEN) == "TimeoutError"
    assert fenced.tried("peer", address, HIDDEN) == "TimeoutError"
    assert fenced.tried("here", address, HIDDEN, SOMEBODY) == "open", "for this host alone"


def test_only_root_and_the_tasks_user_can_answer_at_a_port_of_the_plan(fenced: Networks) -> None:
    """Otherwise another user's process could listen there while a ps is down, and pass for that ps."""
    ways = [("peer", address, ROOT) for address in HERE]
    ways += [("here", address, user) for address in OWN for user in (TASKS, ROOT)]
    for owner, answer in ((ROOT, "open"), (TASKS, "open"), (SOMEBODY, "TimeoutError")):
        with fenced.listen("here", IDLE, owner), ThreadPoolExecutor(len(ways)) as trying:
            found = trying.map(lambda way: fenced.tried(way[0], way[1], IDLE, way[2]), ways)
            assert set(found) == {answer}, owner
    with fenced.listen("here", OTHER + 1, SOMEBODY):
        assert fenced.tried("peer", HERE[0], OTHER + 1) == "open", "not ours to close"


@pytest.mark.parametrize(("place", "address"), [("peer", PEER[0]), ("peer", PEER[1]), ("here", "127.0.0.1")])
def test_no_simultaneous_open_connects_to_a_task_that_has_sent_a_syn(
    fenced: Networks, place: str, address: str
) -> None:
    """TCP connects two sides that send a SYN to each other, as long as neither is answered."""
    unanswered = "add table inet quiet; add chain inet quiet in { type filter hook input priority -1; }"
    syn = f"tcp dport {IDLE} tcp flags & (syn | ack) == syn drop"
    fenced.run("nft", f"{unanswered}; add rule inet quiet in {syn}", at=place)
    with fenced.inside("here", TASKS):
        task = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    task.bind(("", OTHER + 1))
    task.setblocking(False)
    try:
        with suppress(BlockingIOError):
            task.connect((address, IDLE))
        with task, pytest.raises(OSError, match=r"refused|timed out"):
            back = "127.0.0.1" if place == "here" else HERE[":" in address]
            fenced.connect(place, back, OTHER + 1, SOMEBODY, from_port=IDLE)
    finally:
        fenced.run("nft", "delete table inet quiet", at=place)


def test_a_connection_from_before_the_fence_is_cut_off_unless_the_plan_allows_it(
    networks: Networks, rules: Path
) -> None:
    networks.run("nft", "flush", "ruleset", at="here")
    with networks.listen("here", IDLE, TASKS) as server:
        strange, ours = networks.connect("stranger", HERE[0], IDLE), networks.connect("peer", HERE[0], IDLE)
        with networks.inside("here", TASKS):
            accepted = [server.accept()[0], server.accept()[0]]
    put_up(networks, rules)
    ours.send(b"more")
    assert accepted[1].recv(4) == b"more"
    accepted[1].send(b"answer")
    assert ours.recv(6) == b"answer"
    with pytest.raises(ConnectionResetError):
        for _ in range(2):
            strange.send(b"more")
            strange.recv(4)
    with networks.inside("here"):
        assert fence_state.refused_connections()[IDLE] == 0, "none began"
    for each in (strange, ours, *accepted):
        each.close()


@pytest.mark.parametrize(
    ("server", "client", "address"), [("stranger", "here", STRANGER[0]), ("here", "peer", HERE[0])]
)
def test_other_programs_may_connect_from_a_port_of_the_plan(
    fenced: Networks, server: str, client: str, address: str
) -> None:
    """The kernel may give any connection such a port, if the port is in its ephemeral range."""
    with fenced.listen(server, 5555, SOMEBODY) as listening:
        begun = fenced.connect(client, address, 5555, SOMEBODY, from_port=IDLE)
        with fenced.inside(server, SOMEBODY):
            accepted, _ = listening.accept()
    with begun, accepted:
        accepted.send(b"answer")
        assert begun.recv(6) == b"answer"


@pytest.mark.parametrize(
    ("peer", "gateway", "container", "setting"),
    [
        (PEER[0], "10.78.0.1/24", "10.78.0.9/24", "net.ipv4.ip_forward=1"),
        (PEER[1], "fd78::1/64", "fd78::9/64", "net.ipv6.conf.all.forwarding=1"),
    ],
)
def test_a_container_on_a_host_does_not_pass_for_the_host(
    fenced: Networks, peer: str, gateway: str, container: str, setting: str
) -> None:
    """Packets of a container reach the peer with the address of the container's host."""
    own, _, _ = container.partition("/")
    fenced.run("sysctl", "--quiet", "--write", setting, at="here")
    for name, address in (("here", gateway), ("stranger", container)):
        fenced.run("ip", "address", "replace", address, "dev", "eth0", "nodad", at=name)
    fenced.run("ip", "route", "replace", peer, "via", gateway.partition("/")[0], "src", own, at="stranger")
    translate = "add table inet nat; add chain inet nat out { type nat hook postrouting priority 100; }"
    fenced.run("nft", f"{translate}; add rule inet nat out oif eth0 masquerade", at="here")
    try:
        assert fenced.tried("stranger", peer, PORT) == "ConnectionRefusedError"
        with fenced.inside("here"):
            assert fence_state.refused_connections()[PORT] == 0, "it was no task of this host"
        assert fenced.tried("stranger", peer, SSH) == "open"
    finally:
        fenced.run("nft", "delete table inet nat", at="here")
        fenced.run("ip", "route", "delete", peer, at="stranger")


@pytest.mark.parametrize(
    ("entry", "opened", "closed"),
    [
        (f"10.77.0.3:{SSH}", (STRANGER[0], SSH), (STRANGER[0], OTHER)),
        (f"10.77.0.0/24:{SSH}", (PEER[0], SSH), (STRANGER[1], SSH)),
        (f"[fd77::3]:{OTHER - 9}-{OTHER}", (STRANGER[1], OTHER), (STRANGER[1], SSH)),
        ("10.77.0.0/24", (STRANGER[0], SSH), (PEER[0], SSH)),
        ("[::/0]", (STRANGER[1], SSH), (PEER[1], SSH)),
        ("0.0.0.0/0", (STRANGER[0], OTHER), ("127.0.0.1", SSH)),
        (f"127.0.0.1:{SSH}", ("127.0.0.1", SSH), ("127.0.0.1", OTHER)),
        ("store.example", (STRANGER[1], SSH), (STRANGER[0], SSH)),
    ],
)
def test_a_task_reaches_the_places_of_may_reach_and_no_others(
    networks: Networks, rules: Path, entry: str, opened: tuple[str, int], closed: tuple[str, int]
) -> None:
    names = {**FENCE.names, "store.example": (STRANGER[1],)}
    put_up(networks, rules, replace(FENCE, may_reach=(entry,), names=names))
    assert networks.tried("here", *opened, TASKS) == "open"
    assert networks.tried("here", *closed, TASKS) == "ConnectionRefusedError"
    assert networks.tried("here", *opened, SOMEBODY) == "open"


@pytest.mark.parametrize("resolver", STRANGER)
def test_a_task_reaches_a_resolver_only_if_the_plan_has_names(
    networks: Networks, rules: Path, resolver: str
) -> None:
    put_up(networks, rules, replace(FENCE, resolvers=(resolver,)))
    with networks.listen("stranger", 53):
        assert networks.tried("here", resolver, 53, TASKS) == "open"
        assert networks.tried("here", resolver, SSH, TASKS) == "ConnectionRefusedError"
        numbers = tuple(Endpoint(task.host, address, PORT) for task in FENCE.tasks for address in PEER)
        put_up(networks, rules, replace(FENCE, resolvers=(resolver,), tasks=numbers, names={}))
        assert networks.tried("here", resolver, 53, TASKS) == "ConnectionRefusedError"


def test_the_fence_stands_at_every_moment_of_its_replacement(fenced: Networks, rules: Path) -> None:
    over, seen = threading.Event(), set()

    def knock() -> None:
        while not over.is_set():
            seen.add(fenced.tried("stranger", HERE[0], PORT))

    knocking = threading.Thread(target=knock)
    knocking.start()
    try:
        for _ in range(20):
            put_up(fenced, rules)
    finally:
        over.set()
        knocking.join()
    assert seen == {"ConnectionRefusedError"}


def test_a_difference_from_the_deployed_rules_is_reported(networks: Networks, rules: Path) -> None:
    put_up(networks, rules)
    with networks.inside("here"):
        wanted = fence_state.table_in_file(rules)
        assert fence_state.difference(wanted, fence_state.live_table()) == ""
        networks.run("nft", "add element inet psfleet hosts4 { 10.77.0.3 }", at="here")
        assert fence_state.difference(wanted, fence_state.live_table()) == (
            "the table inet psfleet lacks elements = { 10.77.0.1, 10.77.0.2 } "
            "and has elements = { 10.77.0.1, 10.77.0.2, 10.77.0.3 }, which deploy.yml did not write"
        )
        put_up(networks, rules)
        networks.run("nft", "flush chain inet psfleet strangers", at="here")
        assert re.fullmatch(
            "the table inet psfleet lacks ct status dnat .*; ip saddr @hosts4 .* return; .* and 1 more",
            fence_state.difference(wanted, fence_state.live_table()),
        )
        fence_state.remove_table()
        assert (
            fence_state.difference(wanted, fence_state.live_table()) == "the table inet psfleet is not there"
        )


def test_hosts_of_a_mesh_connect_only_through_the_mesh(networks: Networks, rules: Path) -> None:
    put_up(networks, rules, replace(FENCE, mesh="eth0"))
    for address in PEER:
        assert networks.tried("here", address, PORT, TASKS) == "open"
        assert networks.tried("here", address, SSH, ROOT) == "open"
    for address in HERE:
        assert networks.tried("peer", address, PORT) == "open"
        assert networks.tried("stranger", address, PORT) == "ConnectionRefusedError"
    with networks.listen("here", OTHER + 1, ROOT) as server:
        within = networks.connect("peer", HERE[1], OTHER + 1)
        with networks.inside("here"):
            accepted = server.accept()[0]
    put_up(networks, rules, replace(FENCE, mesh="psfleet"))
    with within, accepted, suppress(OSError):  # the interface is gone in the midst of a run
        accepted.send(b"in clear")
        within.settimeout(SECONDS)
        assert within.recv(9) == b""
    for address in HERE:
        assert networks.tried("peer", address, PORT) == "TimeoutError", "no answer leaves that way, either"
    for address in PEER:
        assert networks.tried("here", address, PORT, TASKS) == "ConnectionRefusedError"
        assert networks.tried("here", address, SSH, ROOT) == "ConnectionRefusedError", "by the way of others"
    for address in (*HERE, "127.0.0.1"):
        assert networks.tried("here", address, PORT, TASKS) == "open", "its own"
    assert networks.tried("here", STRANGER[0], SSH, ROOT) == "open"


def test_rules_that_nft_rejects_are_reported(rules: Path) -> None:
    rules.write_text("table inet psfleet { chain x { nonsense; } }")
    with pytest.raises(fence_state.FenceError, match=r"(?s)nft rejects .*nonsense"):
        fence_state.table_in_file(rules)
