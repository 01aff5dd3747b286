"""Counts the bytes that units of systemd received and sent, in running and in ended processes.

systemd forgets the figures of a unit that ended successfully. Its journal keeps them, but has no entry about
a unit without traffic: such a unit had none, provided that this host counts traffic at all.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..host.task_units import count_in, systemctl

# The properties of a unit that `unit_traffic` reads, in addition to MainPID.
TRAFFIC_PROPERTIES = ("IPIngressBytes", "IPEgressBytes")

# The ids of the messages that a unit has ended, successfully or not (sd-messages.h).
_ENDED_MESSAGES = {"7ad2d189f7e94e70a38c781354912448", "d9b373ed55a64feb8242e02dbe79a49c"}
_FIELDS = ("IP_METRIC_INGRESS_BYTES", "IP_METRIC_EGRESS_BYTES")
_SAMPLE = "psfleet-counting.service"


def unit_traffic(
    shown: Mapping[str, Mapping[str, str]], began: Mapping[str, float]
) -> dict[str, tuple[int | None, int | None]]:
    """Return {unit: (bytes received, bytes sent)} since the unit's run began, over all its processes.

    (None, None) stands for a unit whose bytes were not counted. `shown` is {unit: its properties, as
    `systemctl show` prints them}, and `began` is {unit: Unix time at which its run began}. The result has the
    units of `shown`.
    """
    entries = list(entries_since(_journal(began), began))
    ended = traffic_of_ended(entries)
    silent = {entry["UNIT"] for entry in entries if entry.get("MESSAGE_ID") in _ENDED_MESSAGES} - ended.keys()
    if silent and can_count_traffic():
        ended |= dict.fromkeys(silent, (0, 0))
    found: dict[str, tuple[int | None, int | None]] = {}
    for unit, properties in shown.items():
        known = [pair for pair in (ended.get(unit), traffic_of_running(properties)) if pair is not None]
        received, sent = (sum(pair[way] for pair in known) for way in (0, 1))
        found[unit] = (received, sent) if known else (None, None)
    return found


def can_count_traffic() -> bool:
    """Return whether systemd can count traffic on this host; this starts a short-lived unit to find out."""
    options = ["--quiet", f"--unit={_SAMPLE}", "--property=IPAccounting=yes", "--remain-after-exit"]
    output_of("systemd-run", *options, "/bin/true")
    figures = systemctl("show", "--value", f"--property={','.join(TRAFFIC_PROPERTIES)}", _SAMPLE).split()
    systemctl("stop", _SAMPLE)
    return len(figures) == len(TRAFFIC_PROPERTIES) and None not in map(count_in, figures)


def traffic_of_running(properties: Mapping[str, str]) -> tuple[int, int] | None:
    """Return (bytes received, bytes sent) of a unit's running process.

    Return None if no process runs, or if its bytes are not counted.
    """
    received, sent = (count_in(properties.get(name)) for name in TRAFFIC_PROPERTIES)
    runs = properties.get("MainPID", "0") != "0"
    return (received, sent) if runs and received is not None and sent is not None else None


def traffic_of_ended(entries: Iterable[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return {unit: (bytes received, bytes sent)}: sums over its ended processes.

    `entries` are of systemd's journal. A unit without an entry that has both numbers is left out.
    """
    found: dict[str, tuple[int, int]] = {}
    for entry in entries:
        try:
            received, sent = (int(entry[field]) for field in _FIELDS)
        except (ValueError, KeyError, TypeError):
            continue
        earlier = found.get(entry["UNIT"], (0, 0))
        found[entry["UNIT"]] = (earlier[0] + received, earlier[1] + sent)
    return found


def entries_since(texts: Iterable[str], began: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """Yield the journal's entries, as objects, of each unit in `began` since its run began, in their order.

    `texts` are entries as JSON; invalid ones are ignored. `began` is {unit: Unix time}.
    """
    for text in texts:
        try:
            entry = json.loads(text)
            unit, seconds = entry["UNIT"], int(entry["__REALTIME_TIMESTAMP"]) / 1e6
        except (ValueError, KeyError, TypeError):
            continue
        if unit in began and seconds >= began[unit]:
            yield entry


def _journal(began: Mapping[str, float]) -> list[str]:
    if not began:
        return []
    output_of("journalctl", "--sync")
    since = f"--since=@{min(began.values()):.6f}"
    # Other processes may write to the journal, too.
    matches = ["_PID=1", *(f"UNIT={unit}" for unit in began)]
    return output_of("journalctl", "--output=json", since, *matches).splitlines()


def output_of(*command: str) -> str:
    """Run a command and return its standard output, even if it fails."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
