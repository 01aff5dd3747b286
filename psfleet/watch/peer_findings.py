"""The check `peers` of doctor.yml: which hosts reach each other, from the answers of all hosts.

Pure functions. A fault is reported once: at the target if more than half of the other hosts fail to reach it,
else at the hosts that fail to reach it.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from plugins.module_utils.network.fence_rules import to_ip
from plugins.module_utils.network.peer_probes import (
    ANSWERED,
    OPEN,
    REFUSED,
    SECONDS_TO_CONNECT,
    SILENT,
    UNKNOWN,
    ProbeResult,
)
from trainer.host.check import Check
from trainer.host.wording import counted, cut, first_of, grouped

PEERS = "peers"
PLACES_SHOWN = 5
_FIREWALL = "a firewall (ufw, firewalld, a cloud's security group), there or on the way,"
_LET_IN = "let the hosts of the plan reach these ports"
_DROPPED = f"{_FIREWALL} drops it, or no route leads there: {_LET_IN}"
_TUNNEL = (
    "a firewall, there or on the way, drops WireGuard's datagrams: let the hosts of the plan reach UDP port "
    "{}; or the other host has an older key: run `ansible-playbook deploy.yml` on all hosts"
)
_REJECTED = f"{_FIREWALL} rejects it: {_LET_IN}"
_FENCED = (
    "the fence there may not list this host: run `ansible-playbook deploy.yml` on all hosts; else "
    f"{_REJECTED}; or it comes from another address (network address translation)"
)
_SOURCE = (
    "a second address, or network address translation: give the address from which it comes as "
    "trainer_address of this host, or have it come from that of the plan"
)
_OTHER = (
    "two machines have the address, or a device in between answers in place of the host: fix the network, or "
    "trainer_address of the intended host"
)
_NAME = "fix what the check `names` found, or give an IP address: trainer_address"
_WORDS = {
    SILENT: (f"no answer within {SECONDS_TO_CONNECT:g} s", _DROPPED),
    REFUSED: ("refused", _REJECTED),
    UNKNOWN: ("the name is not found", _NAME),
}


class PeerAnswer(NamedTuple):
    """A host's answer about its peers.

    - `machine`: an identifier, by which a probe knows that it reached this host and no other.
    - `ports`: {port: whether the host itself listened there}; False if a task held the port.
    - `names`: {name in the plan: the addresses to which the host resolves it}.
    - `probes`: (target host, port, what the probe found) for each port that the host tried to reach.
    - `fence`: whether the host should have a fence. `mesh`: the port of its WireGuard, 0 without it.
    - `deployed`: whether the trainer is deployed there.
    """

    machine: str
    ports: Mapping[int, bool]
    names: Mapping[str, Sequence[str]]
    probes: Sequence[tuple[str, int, ProbeResult]]
    fence: bool
    deployed: bool
    mesh: int

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "PeerAnswer":
        """Return what a result of the action host_doctor says about peers; the result must have `peers`."""
        listening, probed = (answer["peers"][state] for state in ("listening", "probed"))
        return cls(
            listening["machine"],
            {port: name == "free" for name in ("held", "free") for port in listening[name]},
            probed["names"],
            [
                (each["host"], port, ProbeResult(*(each[field] for field in ProbeResult._fields)))
                for each in probed["probes"]
                for port in each["ports"]
            ],
            answer["fence"],
            bool(answer["deployed"]),
            answer["mesh"],
        )


class Fault(NamedTuple):
    """A port of `target` that `prober` does not reach as it should.

    `what` says how, `remedy` what to do. `own` is True if the prober is the cause.
    """

    prober: str
    target: str
    port: int
    what: str
    remedy: str
    own: bool


def peer_checks(plan: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Check]]:
    """Return {host: its checks} for each host that probed its peers; a failed check for each kind of fault.

    `answers` is as for `Findings.of`. In it, `peers` is the answer of the module `host_doctor` about peers,
    and `fence` the value of port_fence_enabled. A host without faults has one check, "ok", or "skipped" if it
    could try no other host. Only connections between two hosts that both answered count.
    """
    given = {host: PeerAnswer.of(answer) for host, answer in answers.items() if answer.get("peers")}
    addresses = {task["host"]: task["address"] for task in plan["tasks"]}
    faults, tried = [], dict.fromkeys(given, 0)
    for host, own in given.items():
        for target, port, reached in own.probes:
            if (there := given.get(target)) and port in there.ports:
                tried[host] += 1
                if wrong := _wrong(reached, there, port, addresses.get(host, "")):
                    faults.append(Fault(host, target, port, *wrong))
    checks = grouped(_fault_checks(faults, len(given) - 1))
    missed, targets = grouped((fault.prober, fault) for fault in faults), {fault.target for fault in faults}
    for host in given.keys() - checks.keys():
        reaches = f"reaches {tried[host] - len(missed.get(host, ()))} of {counted(tried[host], 'port')}"
        found = f"{reaches} of {counted(len(given) - 1, 'other host')}"
        well = Check(PEERS, "ok", found if host in targets else f"{found}, and is reached")
        checks[host] = [well if tried[host] else Check(PEERS, "skipped", "no other host was tried")]
    return checks


def _wrong(reached: ProbeResult, there: PeerAnswer, port: int, address: str) -> tuple[str, str, bool] | None:
    """Return (what is wrong, remedy, whether the prober is the cause); None if all is well.

    `reached` is what the prober found at `port`, `there` is the target's answer, and `address` the prober's
    address in the plan. If the target has a fence, it refuses connections from other addresses than those to
    which it resolves `address`.
    """
    source, known = _ip(reached.source), {_ip(ip) for ip in there.names.get(address, [address])} - {""}
    strange = there.fence and bool(known) and source not in {"", *known}
    comes = f"it comes from {source}, and the plan has {address}"
    if reached.outcome == ANSWERED and reached.machine == there.machine:
        return (f"{comes}: a fence there refuses that", _SOURCE, True) if strange else None
    if reached.outcome == ANSWERED:
        return f"another machine answers, and its name is {cut(reached.name, 64)}", _OTHER, False
    if reached.outcome == OPEN:
        return ("something else answers", _OTHER, False) if there.ports[port] else None
    what, remedy = _WORDS.get(reached.outcome, (cut(reached.outcome, 64), _DROPPED))
    remedy = _TUNNEL.format(there.mesh) if reached.outcome == SILENT and there.mesh else remedy
    remedy = _FENCED if reached.outcome == REFUSED and there.fence and there.deployed else remedy
    return (f"{what}; {comes}", f"{remedy}; or {_SOURCE}", True) if strange else (what, remedy, False)


@lru_cache(maxsize=1024)
def _ip(address: str) -> str:
    """Return an IP address as the fence writes it; "" for a name or for loopback, which the fence ignores."""
    ip = to_ip(address)
    return "" if ip is None or ip.is_loopback else str(ip)


def _fault_checks(faults: Sequence[Fault], others: int) -> Iterator[tuple[str, Check]]:
    """Yield (host, failed check) for the faults; faults of one kind between the same hosts share a check.

    `others` is the number of other hosts. If more than half of them fail to reach the target, the check is
    the target's; else, or if the prober is the cause, it is the prober's.
    """
    at_target, at_prober = [], []
    alike = grouped((fault._replace(prober=""), fault.prober) for fault in faults)
    for (_, target, port, what, remedy, own), probers in alike.items():
        if own or 2 * len(probers) <= others:
            at_prober += [((prober, what, remedy), (target, port)) for prober in probers]
        else:
            at_target.append(((target, what, remedy, tuple(probers)), port))
    for (host, what, remedy, by), ports in grouped(at_target).items():
        whence = "every other host" if 1 < others == len(by) else first_of(by, PLACES_SHOWN)
        yield host, Check(PEERS, "failed", f"from {whence} to {_ports(ports)}: {what}", remedy)
    for (host, what, remedy), places in grouped(at_prober).items():
        targets = [f"{target} at {_ports(ports)}" for target, ports in grouped(places).items()]
        yield host, Check(PEERS, "failed", f"to {first_of(targets, PLACES_SHOWN)}: {what}", remedy)


def _ports(ports: Sequence[int]) -> str:
    return f"port{'' if len(ports) == 1 else 's'} {first_of([*map(str, ports)], PLACES_SHOWN)}"
