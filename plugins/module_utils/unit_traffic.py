"""How many bytes units of systemd have received and sent: of the running process, and of those that ended.

systemd forgets the figures of a unit that ended well. What it wrote of it to the journal stays, but it writes
nothing of a unit without traffic: that one has had none if this host counts at all.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .host.task_units import counted, systemctl

# Properties of a unit that `unit_traffic` reads, beside MainPID.
TRAFFIC_PROPERTIES = ("IPIngressBytes", "IPEgressBytes")

# Of the entries that a unit ended, well and not (sd-messages.h).
_ENDED_MESSAGES = {"7ad2d189f7e94e70a38c781354912448", "d9b373ed55a64feb8242e02dbe79a49c"}
_FIELDS = ("IP_METRIC_INGRESS_BYTES", "IP_METRIC_EGRESS_BYTES")
_SAMPLE = "psfleet-counting.service"


def unit_traffic(
    shown: Mapping[str, Mapping[str, str]], began: Mapping[str, float]
) -> dict[str, tuple[int | None, int | None]]:
    """Return the bytes that each unit has received and sent since its run began; None where not counted.

    `shown` holds each unit's properties, as `systemctl show` prints them, `began` the Unix time of its run.
    """
    entries = list(entries_since(_journal(began), began))
    ended = traffic_of_ended(entries)
    silent = {entry["UNIT"] for entry in entries if entry.get("MESSAGE_ID") in _ENDED_MESSAGES} - ended.keys()
    if silent and counts():
        ended |= dict.fromkeys(silent, (0, 0))
    found: dict[str, tuple[int | None, int | None]] = {}
    for unit, properties in shown.items():
        known = [pair for pair in (ended.get(unit), traffic_of_running(properties)) if pair is not None]
        received, sent = (sum(pair[way] for pair in known) for way in (0, 1))
        found[unit] = (received, sent) if known else (None, None)
    return found


def counts() -> bool:
    """Tell whether systemd can count traffic on this host, by a unit that is there for a moment."""
    options = ["--quiet", f"--unit={_SAMPLE}", "--property=IPAccounting=yes", "--remain-after-exit"]
    run("systemd-run", *options, "/bin/true")
    figures = systemctl("show", "--value", f"--property={','.join(TRAFFIC_PROPERTIES)}", _SAMPLE).split()
    systemctl("stop", _SAMPLE)
    return len(figures) == len(TRAFFIC_PROPERTIES) and None not in map(counted, figures)


def traffic_of_running(properties: Mapping[str, str]) -> tuple[int, int] | None:
    """Return what a unit's process has received and sent; None where none runs, or none is counted."""
    received, sent = (counted(properties.get(name)) for name in TRAFFIC_PROPERTIES)
    runs = properties.get("MainPID", "0") != "0"
    return (received, sent) if runs and received is not None and sent is not None else None


def traffic_of_ended(entries: Iterable[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return what the processes of each unit that ended have received and sent, by these entries."""
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
    """Return the journal's entries of units since their run began. `texts` are entries of systemd as JSON."""
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
    run("journalctl", "--sync")
    since = f"--since=@{min(began.values()):.6f}"
    # Others may write to the journal, too.
    matches = ["_PID=1", *(f"UNIT={unit}" for unit in began)]
    return run("journalctl", "--output=json", since, *matches).splitlines()


def run(*command: str) -> str:
    """Run a command and return what it printed; where it fails, what it should have told is not known."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
