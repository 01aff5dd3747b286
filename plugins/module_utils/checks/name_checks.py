"""The host check `names`: whether a host resolves the host names that the plan has."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..facts.host_facts import run_program
from ..host.check import Finding, failed, ok, warning
from ..host.whole_files import text_of
from ..host.wording import counted, first_of

# The sources of /etc/nsswitch.conf that work in a task's sandbox. Other sources, such as mdns4 and sss, ask a
# service at a unix socket that tasks cannot reach.
_SOURCES_OF_TASKS = ("files", "db", "dns", "myhostname")


@dataclass(frozen=True)
class Resolution:
    """The IP addresses of a name on a host, sorted; without addresses, `problem` says why."""

    addresses: tuple[str, ...]
    problem: str = ""


def names_in(addresses: Mapping[str, str]) -> list[str]:
    """Return the names among the plan's addresses, {host: address}, sorted, each once."""
    return sorted({address for address in addresses.values() if not _is_ip(address)})


def resolve_names(names: Sequence[str]) -> dict[str, Resolution]:
    """Return {name: its resolution} on this host, by the sources that tasks can use (`sources_of_tasks`)."""
    sources = " ".join(sources_of_tasks(text_of(Path("/etc/nsswitch.conf"))))
    with ThreadPoolExecutor(16) as pool:
        resolutions = {name: pool.submit(_resolve, name, sources) for name in names}
    return {name: resolution.result() for name, resolution in resolutions.items()}


def sources_of_tasks(nsswitch: str) -> list[str]:
    """Return the sources of host names that tasks can use, in the order of the text of /etc/nsswitch.conf.

    Example: "hosts: files mdns4_minimal [NOTFOUND=return] dns" -> ["files", "dns"]. If the text names no such
    source, the result is the same.
    """
    lines = (line.partition("#")[0].partition(":") for line in nsswitch.splitlines())
    words = [word for name, _, value in lines if name.strip() == "hosts" for word in value.split()]
    return [word for word in words if word in _SOURCES_OF_TASKS] or ["files", "dns"]


def _resolve(name: str, sources: str) -> Resolution:
    _, printed, complaint = run_program(["getent", "-s", f"hosts:{sources}", "ahosts", name], 10.0)
    found = tuple(sorted({line.split()[0] for line in printed.splitlines() if line.strip()}))
    return Resolution(found, "" if found else complaint.strip() or "not known")


def names_finding(host: str, addresses: Mapping[str, str], resolved: Mapping[str, Resolution]) -> Finding:
    """Return the finding of the check `names`, which ran on `host`.

    It is failed if a name does not resolve, or if another host's name resolves to loopback. `addresses` is
    {host: address in the plan}, which may be a name; `resolved` is what `resolve_names` returned on this
    host. Its own name may resolve to a loopback address, such as Debian's 127.0.1.1, because tasks listen on
    every address; with other hosts in the plan, that is a warning.
    """
    names = names_in(addresses)
    if not names:
        return ok("addresses are used, no names")
    wrong, remedies, own = [], set(), ""
    for other, name in sorted(addresses.items()):
        if name not in resolved:
            continue
        found = resolved[name]
        own_ones = (address.partition("%")[0] for address in found.addresses)
        loopback = [address for address in own_ones if ipaddress.ip_address(address).is_loopback]
        if not found.addresses:
            wrong.append(f"{_host_and_name(other, name)} does not resolve ({found.problem})")
            remedies.add(
                "write it into /etc/hosts or DNS, or give an IP address: trainer_address of that host"
            )
        elif loopback and other != host:
            wrong.append(f"{_host_and_name(other, name)} is {loopback[0]}, which is {host} itself")
            remedies.add(
                "correct /etc/hosts of this host, or give an IP address: trainer_address of that host"
            )
        elif loopback and len(addresses) > 1:
            own = f"{_host_and_name(other, name)} is {loopback[0]} here, which no other host reaches"
    if wrong:
        return failed(first_of(wrong, 5, "; "), "; ".join(sorted(remedies)))
    if own:
        return warning(
            f"{own}: psfleet's tasks listen on every address, a user's program may listen there alone",
            "remove that line from /etc/hosts of this host, or set trainer_address to its IP address",
        )
    return ok(f"{counted(len(names), 'name')} found")


def _host_and_name(host: str, name: str) -> str:
    return host if host == name else f"{name} (of {host})"


def _is_ip(address: str) -> bool:
    try:
        ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        return False
    return True
