"""Three machines, two of them of one plan, with a fence for the first: what tests of packets share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plugins.module_utils.network.fence_rules import Endpoint, Fence, ruleset
from tests.networks import Networks

ROOT, TASKS, SOMEBODY = 0, 61001, 61002
HERE, PEER, STRANGER = ("10.77.0.1", "fd77::1"), ("10.77.0.2", "fd77::2"), ("10.77.0.3", "fd77::3")
# Further addresses of two of them: beside the plan's, and at another interface.
BESIDE = {"here": ("10.77.0.11", "fd77::11"), "peer": ("10.77.0.12", "fd77::12")}
APART = {"here": ("10.79.0.1", "fd79::1"), "peer": ("10.79.0.2", "fd79::2")}
OWN = ("127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1", *HERE)
# Ports of tasks on both hosts; of a task that does not listen; of SSH and others; of a forbidden listener.
PORT, IDLE, SSH, OTHER, HIDDEN = 2222, 2223, 22, 9999, 7777
LISTEN = ((PORT, TASKS), (SSH, ROOT), (OTHER, ROOT), (HIDDEN, TASKS))
FENCE = Fence(
    "here",
    "tasks",
    (
        Endpoint("here", "[fd77::1]", PORT),
        Endpoint("here", "10.77.0.1", PORT),
        Endpoint("here", "10.77.0.1", IDLE),
        Endpoint("there", "peer.example", PORT),
        Endpoint("there", "peer.example", IDLE),
    ),
    uid=TASKS,
    names={"peer.example": PEER},
    own=HERE,
)


@contextmanager
def made_networks() -> Iterator[Networks]:
    """Make the three machines; on each, the same programs listen."""
    made = Networks({"here": HERE, "peer": PEER, "stranger": STRANGER})
    try:
        for name, gateways in (("here", HERE), ("peer", PEER)):
            for beside, apart, gateway in zip(BESIDE[name], APART[name], gateways, strict=True):
                for address, interface in ((beside, "eth0"), (apart, "lo")):
                    deprecated = ["preferred_lft", "0"]  # no source, unless it is asked for
                    made.run("ip", "address", "add", address, "dev", interface, *deprecated, at=name)
                for other in {"here", "peer", "stranger"} - {name}:
                    made.run("ip", "route", "add", apart, "via", gateway, at=other)
        servers = [made.listen(name, *of) for name in ("here", "peer", "stranger") for of in LISTEN]
        yield made
        for server in servers:
            server.close()
    finally:
        made.close()


def put_up(networks: Networks, rules: Path, fence: Fence = FENCE, at: str = "here") -> None:
    """Put up a fence on one of the machines."""
    rules.write_text(ruleset(fence))
    networks.run("nft", "--file", str(rules), at=at)
