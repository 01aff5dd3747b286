"""The fence of this host: what the host adds to its rules, and whether it is as deploy.yml left it."""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path

from ..checks.name_checks import names_finding, names_in, resolve_names
from ..deployment import MOST_BYTES_OF_PLAN, NOT_DEPLOYED
from ..facts.host_facts import SECONDS_TO_ANSWER, run_program
from ..host.check import Finding, failed, ok, skipped
from ..host.task_traces import object_in, read_object
from ..host.whole_files import text_of
from ..host.wording import first_of
from .fence_rules import IP, REFUSED_AT, Fence, ruleset, to_ip
from .mesh import CONFIGURATION, mesh_problem, read_dump
from .peer_probes import source_address

RULES, RECORD = "fence.nft", "fence.json"
DEPLOY = "ansible-playbook deploy.yml"
_TABLE = ("table", "inet", "psfleet")
# Loads rules in an empty network namespace, where they have no effect, and lists them as nft prints them.
_APART = ("unshare", "--net", "sh", "-c", 'nft --file "$1" && nft --stateless list table inet psfleet', "sh")


class FenceError(ValueError):
    """The fence cannot be built as the inventory wants it; the message says why."""


class UnknownUserError(FenceError):
    """The tasks' user does not exist yet."""


def survey(fence: Fence, *, strict: bool = True) -> Fence:
    """Return the fence with the fields that this host adds (see Fence), as they are now.

    Raises UnknownUserError if the host has no user `fence.user`. With `strict`, raises FenceError if a name
    does not resolve, or if no other host can reach this host; without, the name has no addresses.
    """
    try:
        uid = pwd.getpwnam(fence.user).pw_uid
    except KeyError:
        raise UnknownUserError(f"this host has no user {fence.user}") from None
    beside = [name for _, name, _ in fence.entries if name]
    resolved = resolve_names(names_in({place: place for place in (*fence.addresses.values(), *beside)}))
    if strict:
        finding = names_finding(fence.host, fence.addresses, resolved)
        unknown = [name for name in beside if not resolved[name].addresses]
        if finding.state == "failed":
            raise FenceError(f"{finding.found}: {finding.remedy}")
        if unknown:
            what = f"trainer_program_may_reach names {', '.join(unknown)}, which this host cannot resolve"
            raise FenceError(f"{what}; expected names that it can resolve, or addresses")
    here = replace(
        fence,
        uid=uid,
        names={name: tuple(sorted(map(_plain, found.addresses))) for name, found in resolved.items()},
        resolvers=read_resolvers() if resolved else (),
    )
    own = own_addresses(here)
    if strict and not own and len(here.addresses) > 1:
        raise FenceError(
            f"its address in the plan is {here.addresses[here.host]}, a loopback address here, and it has "
            "no route to the other hosts; expected trainer_address to be an address that they reach"
        )
    return replace(here, own=own)


def own_addresses(fence: Fence) -> tuple[str, ...]:
    """Return the IP addresses to which other hosts send packets for this host, sorted; () if unknown.

    Usually this is the host's address in the plan. But for its own name, a host may know only a loopback
    address, all its addresses (nss-myhostname), or none of them (if a router translates the plan's address).
    Then the result has the addresses from which the host sends to the other hosts, because they accept no
    other addresses. `fence` has the resolved names.
    """
    address = fence.addresses.get(fence.host, "")
    planned = set(fence.ips(address))
    if fence.mesh:  # its interface may not be there
        return _sorted(planned)
    others = {ip for host, other in fence.addresses.items() if host != fence.host for ip in fence.ips(other)}
    sources = {ip for other in others if (ip := _source(other))}
    local = {ip for ip in planned if _source(ip) == ip}
    found = planned - local
    for version in {ip.version for ip in fence.resolved(address) if ip.is_loopback or ip in planned}:
        here, used = ({ip for ip in ips if ip.version == version} for ips in (local, sources))
        found |= here & used or here or used
    return _sorted(found)


def _source(ip: IP) -> IP | None:
    """Return the address from which this host would send to `ip`; None if it has no route there.

    For one of its own addresses, this is the address itself.
    """
    return to_ip(source_address(str(ip), 9))


def _sorted(ips: Iterable[IP]) -> tuple[str, ...]:
    return tuple(sorted(map(str, ips)))


def _plain(address: str) -> str:
    return str(to_ip(address) or address)


def read_resolvers(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the IP addresses of the name servers in /etc/resolv.conf below `root`, sorted.

    Without any, return ("127.0.0.1",).
    """
    lines = [line.split() for line in text_of(root / "etc/resolv.conf").splitlines()]
    found = [words[1] for words in lines if words[:1] == ["nameserver"] and words[1:] and to_ip(words[1])]
    return tuple(sorted(map(_plain, found))) or ("127.0.0.1",)  # as resolv.conf(5) has it


def table_in_file(rules: Path) -> str:
    """Return nft's listing of the table that the file `rules` would make; this host's rules stay as they are.

    Raises FenceError with nft's words if nft rejects the file.
    """
    status, printed, complaint = run_program([*_APART, str(rules)], SECONDS_TO_ANSWER)
    if status:
        raise FenceError(f"nft rejects {rules}: {complaint.strip()}")
    return printed


def live_table() -> str:
    """Return nft's listing of psfleet's table in the kernel; "" if there is no table."""
    return run_program(["nft", "--stateless", "list", *_TABLE], SECONDS_TO_ANSWER)[1]


def refused_connections() -> dict[int, int]:
    """Return {port of a task of this host: number of refused connections to it}; {} without psfleet's table.

    They are counted since the last `reset_refused_counters`, or since the table was loaded.
    """
    printed = run_program(["nft", "--json", "list", "counters", *_TABLE], SECONDS_TO_ANSWER)[1]
    listed_objects = object_in(printed).get("nftables", [])
    counters = [each["counter"] for each in listed_objects if "counter" in each]
    return {
        int(counter["name"][len(REFUSED_AT) :]): int(counter["packets"])
        for counter in counters
        if counter["name"].startswith(REFUSED_AT)
    }


def reset_refused_counters() -> None:
    """Set the counters of refused connections to 0; do nothing without psfleet's table."""
    run_program(["nft", "reset", "counters", *_TABLE], SECONDS_TO_ANSWER)


def remove_table() -> None:
    """Remove psfleet's table of rules from the kernel; do nothing if there is none."""
    if live_table():
        run_program(["nft", "delete", *_TABLE], SECONDS_TO_ANSWER)


def fence_problem(configuration: Path) -> str:
    """Return, in words, how this host's fence differs from what deploy.yml set up; "" if it does not.

    It compares the file of rules, the rules in the kernel, the host's addresses, name servers and user, and
    the mesh. Without a fence, this is the problem. `configuration` is the configuration directory.
    """
    rules = configuration / RULES
    try:
        fence = Fence.from_json(read_object(configuration / RECORD, most=MOST_BYTES_OF_PLAN))
        then = ruleset(fence)
    except (KeyError, TypeError, ValueError):
        return "deploy.yml has set up no fence there"
    if text_of(rules) != then:
        return f"{rules} is not what deploy.yml wrote"
    try:
        found = changes(fence, survey(fence, strict=False)) or difference(table_in_file(rules), live_table())
        return found or (
            mesh_problem(text_of(configuration / CONFIGURATION), read_dump()) if fence.mesh else ""
        )
    except FenceError as error:
        return str(error)


def changes(then: Fence, now: Fence) -> str:
    """Return, in words, which fields that the host adds have changed since the deployment; "" if none has.

    `then` is the fence that deploy.yml wrote, `now` is what `survey` returns.
    """
    differences = [
        f"{name} was {_shown(addresses)} when deploy.yml ran, and is {_shown(now.names.get(name, ()))} now"
        for name, addresses in then.names.items()
        if now.names.get(name) != addresses
    ]
    if then.resolvers != now.resolvers:
        servers = f"{_shown(then.resolvers)}, and are {_shown(now.resolvers)} now"
        differences.append(f"its name servers were {servers}")
    if then.own != now.own:
        before = f"the other hosts reached it at {_shown(then.own)} when deploy.yml ran"
        differences.append(f"{before}, and reach it at {_shown(now.own)} now")
    if then.uid != now.uid:
        differences.append(f"user {then.user} had the number {then.uid}, and has {now.uid} now")
    return first_of(differences, 5, "; ")


def _shown(addresses: Sequence[str]) -> str:
    return ", ".join(addresses) or "not known"


def difference(wanted: str, live: str) -> str:
    """Return, in words, what the live table lacks and what it has in addition; "" if it is as wanted.

    `wanted` and `live` are nft's listings, as `table_in_file` and `live_table` return them; `live` is "" if
    there is no table.
    """
    if not live:
        return "the table inet psfleet is not there"
    # nft breaks the lines of what a set holds.
    then, now = (re.sub(r",\s+", ", ", text).splitlines() for text in (wanted, live))
    lines = list(unified_diff(then, now, n=0, lineterm=""))[2:]
    missing, more = (
        [line[1:].strip() for line in lines if line.startswith(sign) and line[1:].strip()] for sign in "-+"
    )
    words = [f"lacks {first_of(missing, 3, '; ')}"] if missing else []
    words += [f"has {first_of(more, 3, '; ')}, which deploy.yml did not write"] if more else []
    return f"the table inet psfleet {' and '.join(words)}" if words else ""


def fence_finding(configuration: Path, *, wanted: bool, deployed: bool) -> Finding:
    """Return the finding of the check `fence`: failed if the fence is not as deployed, else ok.

    It is skipped if nothing is `deployed` on the host, or if the fence is not `wanted` (port_fence_enabled).
    `configuration` is the configuration directory.
    """
    if not deployed:
        return skipped(NOT_DEPLOYED)
    if not wanted:
        return skipped("port_fence_enabled is false")
    if problem := fence_problem(configuration):
        return failed(f"the ports of its tasks are not fenced as deployed: {problem}", f"run `{DEPLOY}`")
    return ok("it is in force as deployed")
