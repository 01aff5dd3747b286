"""How many bytes units of systemd have received and sent: of the running process, and of those that ended.

systemd forgets the figures of a unit that ended well; what it wrote of it to the journal stays.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping

# Properties of a unit that `unit_traffic` reads, beside MainPID.
TRAFFIC_PROPERTIES = ("IPIngressBytes", "IPEgressBytes")

# The entry with what a unit has used, written when it ends (sd-messages.h).
RESOURCES_MESSAGE = "ae8f7b866b0347b9af31fe1c80b127c0"
_FIELDS = ("IP_METRIC_INGRESS_BYTES", "IP_METRIC_EGRESS_BYTES")
_NOT_COUNTED = 2**64 - 1


def unit_traffic(
    shown: Mapping[str, Mapping[str, str]], began: Mapping[str, float]
) -> dict[str, tuple[int | None, int | None]]:
    """Return the bytes that each unit has received and sent since its run began; None where not counted.

    `shown` holds each unit's properties, as `systemctl show` prints them, `began` the Unix time of its run.
    """
    ended = traffic_of_ended(_journal(began), began)
    found: dict[str, tuple[int | None, int | None]] = {}
    for unit, properties in shown.items():
        counted = [pair for pair in (ended.get(unit), traffic_of_running(properties)) if pair is not None]
        received, sent = (sum(pair[way] for pair in counted) for way in (0, 1))
        found[unit] = (received, sent) if counted else (None, None)
    return found


def traffic_of_running(properties: Mapping[str, str]) -> tuple[int, int] | None:
    """Return what a unit's process has received and sent; None where none runs, or none is counted."""
    received, sent = (properties.get(name, "") for name in TRAFFIC_PROPERTIES)
    if properties.get("MainPID", "0") == "0" or not (received.isdigit() and sent.isdigit()):
        return None
    return None if _NOT_COUNTED in {int(received), int(sent)} else (int(received), int(sent))


def traffic_of_ended(entries: Iterable[str], began: Mapping[str, float]) -> dict[str, tuple[int, int]]:
    """Return what the processes of each unit that ended since its run began have received and sent.

    `entries` are those of RESOURCES_MESSAGE in the journal, each as JSON.
    """
    found: dict[str, tuple[int, int]] = {}
    for text in entries:
        try:
            entry = json.loads(text)
            unit, seconds = entry["UNIT"], int(entry["__REALTIME_TIMESTAMP"]) / 1e6
            received, sent = (int(entry[field]) for field in _FIELDS)
        except (ValueError, KeyError, TypeError):
            continue
        if unit in began and seconds >= began[unit]:
            earlier = found.get(unit, (0, 0))
            found[unit] = (earlier[0] + received, earlier[1] + sent)
    return found


def _journal(began: Mapping[str, float]) -> list[str]:
    if not began:
        return []
    journalctl("--sync")
    done = journalctl(
        "--output=json",
        f"--since=@{min(began.values()):.6f}",
        f"MESSAGE_ID={RESOURCES_MESSAGE}",
        # Others may write to the journal, too.
        "_PID=1",
        *(f"UNIT={unit}" for unit in began),
    )
    return done.stdout.splitlines()


def journalctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run journalctl. Where there is no journal, nothing is known of what has ended."""
    command = ["journalctl", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
