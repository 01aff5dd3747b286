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
    """The IP addresses to which a name resolves on a host, sorted.

    `problem` says why there are none; "" if there are any.
    """

    addresses: tuple[str, ...]
    problem: str = ""


def names_in(addresses: Mapping[str, str]) -> list[str]:
    """Return the host names among the plan's addresses, sorted, each once; IP addresses are left out.

    `addresses` is {host: address in the plan}.
    """
    return sorted({address for address in addresses.values() if not _is_ip(address)})


def resolve_names(names: Sequence[str]) -> dict[str, Resolution]:
    """Return {name: its resolution} on this host, from the sources that tasks can use (`sources_of_tasks`).

    It waits for each name at most 10 s; 16 names are resolved at the same time.
    """
    sources = " ".join(sources_of_tasks(text_of(Path("/etc/nsswitch.conf"))))
    with ThreadPoolExecutor(16) as pool:
        resolutions = {name: pool.submit(_resolve, name, sources) for name in names}
    return {name: resolution.result() for name, resolution in resolutions.items()}


def sources_of_tasks(nsswitch: str) -> list[str]:
    """Return the sources of host names that tasks can use, in the order of /etc/nsswitch.conf.

    `nsswitch` is the file's text. If it names none that tasks can use, the result is ["files", "dns"].

    Example: "hosts: files mdns4_minimal [NOTFOUND=return] dns" -> ["files", "dns"]
    """
    lines = (line.partition("#")[0].partition(":") for line in nsswitch.splitlines())
    words = [word for name, _, value in lines if name.strip() == "hosts" for word in value.split()]
    return [word for word in words if word in _SOURCES_OF_TASKS] or ["files", "dns"]


def _resolve(name: str, sources: str) -> Resolution:
    _, printed, complaint = run_program(["getent", "-s", f"hosts:{sources}", "ahosts", name], 10.0)
    found = tuple(sorted({line.split()[0] for line in printed.splitlines() if line.strip()}))
    return Resolution(found, "" if found else complaint.strip() or "not known")


def names_finding(host: str, addresses: Mapping[str, str], resolved: Mapping[str, Resolution]) -> Finding:
    """Return the finding of the check `names` of `host`.

    It is failed if a name does not resolve on the host, or if the name of another host resolves to loopback
    there. It is a warning if the host's own name resolves to loopback, such as Debian's 127.0.1.1, and the
    plan has other hosts. `addresses` is {host: address in the plan}, which may be a name; `resolved` is what
    `resolve_names` returned on the host.
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
