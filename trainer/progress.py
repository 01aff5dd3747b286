"""One line about a run that is going on, for people: from two readings of the lead's `progress.json`.

The object's fields are in docs/architecture.md. Rates come from the difference of two readings, so that a
worker that has stopped shows at once, however fast it was before. A program of one's own may tell no steps:
then the line says how long it has been running, and what it printed last.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

BAR_WIDTH = 24
WORKERS_SHOWN = 4
MISSING_SHOWN = 4
LOG_CHARACTERS = 120
# Colours and cursor movements: what is left of them without the escape character would be noise.
_CONTROL_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


@dataclass(frozen=True)
class Progress:
    """A reading of `progress.json`. `wall` is in Unix seconds of the lead's clock.

    `elapsed` (seconds) and `last_line`, of the lead's output, are known beside it where they are asked for.
    """

    phase: str
    wall: float = 0.0
    global_step: int = 0
    last_step: int = 0
    loss: float | None = None
    contributions: tuple[int, ...] = ()
    missing: tuple[str, ...] = ()
    reason: str = ""
    elapsed: float | None = None
    last_line: str = ""

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> Progress:
        """Read the object; a field that is absent or of another type counts as not known."""
        missing = values.get("missing")
        contributions = values.get("contributions")
        return cls(
            phase=str(values.get("phase", "starting")),
            wall=_number(values.get("wall")) or 0.0,
            global_step=int(_number(values.get("global_step")) or 0),
            last_step=int(_number(values.get("last_step")) or 0),
            loss=_number(values.get("loss")),
            contributions=tuple(int(_number(count) or 0) for count in contributions)
            if isinstance(contributions, Sequence) and not isinstance(contributions, str)
            else (),
            missing=tuple(_missing_task(entry) for entry in missing) if isinstance(missing, list) else (),
            reason=str(values.get("reason") or ""),
        )

    def same_word(self, other: Progress) -> bool:
        """Whether the lead has written nothing between the two."""
        return replace(self, elapsed=None, last_line="") == replace(other, elapsed=None, last_line="")

    @property
    def over(self) -> bool:
        """Whether the lead has said that the run is over."""
        return self.phase in {"finished", "stopped", "failed"}


@dataclass
class Watcher:
    """What has been seen of a run; `line` says where it stands now."""

    previous: Progress | None = field(default=None)
    rates: tuple[float, ...] = field(default=())
    steps_per_second: float | None = None

    def line(self, now: Progress) -> str:
        """Take the newest reading and describe it in one line."""
        self._measure(now)
        waiting = f"waiting for {_names(now.missing)}" if now.missing else ""
        if now.phase in {"starting", "waiting"} and not now.global_step:
            return printable(waiting or "tasks are starting")
        parts = [*_steps(now), *self._speed(now)]
        if now.phase in {"training", "waiting"}:
            parts.append(waiting)
        elif now.phase != "finished":
            parts.append(": ".join(part for part in (now.phase, now.reason or waiting) if part))
        if now.last_line and now.phase == "training":
            parts.append(f"| {now.last_line[:LOG_CHARACTERS]}")
        return printable("  ".join(part for part in parts if part)) or now.phase

    def _speed(self, now: Progress) -> list[str]:
        if now.phase != "training" or self.steps_per_second is None or not now.last_step:
            return []
        return [_rates(self.rates), _time_left(now, self.steps_per_second)]

    def _measure(self, now: Progress) -> None:
        before = self.previous
        # A restored run jumps to the steps of its checkpoint before it trains.
        if before and before.phase == "training" and now.wall > before.wall:
            seconds = now.wall - before.wall
            self.steps_per_second = max(now.global_step - before.global_step, 0) / seconds
            self.rates = tuple(
                max(after - earlier, 0) / seconds
                for earlier, after in zip(before.contributions, now.contributions, strict=False)
            )
        if before is None or now.wall > before.wall:
            self.previous = now


def last_line_of(text: str) -> str:
    """Return the last line with words at the end of a task's output, as a terminal would leave it."""
    # A bar that redraws itself begins each drawing with a carriage return, or ends it with one.
    drawn = (line.rstrip("\r").rpartition("\r")[2] for line in reversed(text.split("\n")))
    lines = (" ".join(printable(_CONTROL_SEQUENCE.sub("", line)).split()) for line in drawn)
    return next((line for line in lines if line), "")


def _steps(now: Progress) -> list[str]:
    """Say how far the run is, by its steps where it has told any, else by the time."""
    parts = []
    if now.last_step:
        share = min(now.global_step / now.last_step, 1.0)
        filled = round(share * BAR_WIDTH)
        parts = [
            f"[{'#' * filled}{'-' * (BAR_WIDTH - filled)}] {share:4.0%}",
            f"step {now.global_step}/{now.last_step}",
        ]
    else:
        if now.elapsed is not None:
            parts.append(_clock(now.elapsed))
        if now.global_step:
            parts.append(f"step {now.global_step}")
    if now.loss is not None:
        parts.append(f"loss {now.loss:.4f}")
    return parts


def _names(missing: Sequence[str]) -> str:
    shown = "; ".join(missing[:MISSING_SHOWN])
    return f"{shown} and {len(missing) - MISSING_SHOWN} more" if len(missing) > MISSING_SHOWN else shown


def _rates(rates: Sequence[float]) -> str:
    if len(rates) <= WORKERS_SHOWN:
        return "  ".join(f"worker{index} {rate:.0f}/s" for index, rate in enumerate(rates))
    still = [f"worker{index}" for index, rate in enumerate(rates) if not rate]
    standing = f" ({_names(still)} at none)" if still and len(still) < len(rates) else ""
    return f"{len(rates)} workers, {min(rates):.0f} to {max(rates):.0f} steps/s each{standing}"


def _time_left(now: Progress, steps_per_second: float) -> str:
    if steps_per_second <= 0:
        return "no step in the last second"
    return f"{_clock(max(now.last_step - now.global_step, 0) / steps_per_second)} left"


def _clock(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def printable(text: str) -> str:
    """A host's words must not steer the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _missing_task(entry: object) -> str:
    if not isinstance(entry, Mapping):
        return str(entry)
    where = f" at {entry['address']}" if entry.get("address") else ""
    return f"{entry.get('task')}{where} ({entry.get('reason')})"
