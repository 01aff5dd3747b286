"""One line about a run that is going on, for people: from two readings of the chief's `progress.json`.

The object's fields are in docs/architecture.md. Rates come from the difference of two readings, so that a
worker that has stopped shows at once, however fast it was before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BAR_WIDTH = 24
WORKERS_SHOWN = 4


@dataclass(frozen=True)
class Progress:
    """A reading of `progress.json`. `wall` is in Unix seconds of the chief's clock."""

    phase: str
    wall: float = 0.0
    global_step: int = 0
    last_step: int = 0
    loss: float | None = None
    contributions: tuple[int, ...] = ()
    missing: tuple[str, ...] = ()
    reason: str = ""

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

    @property
    def over(self) -> bool:
        """Whether the chief has said that the run is over."""
        return self.phase in {"finished", "stopped", "failed"}


@dataclass
class Watcher:
    """What has been seen of a run; `line` says where it stands now."""

    previous: Progress | None = field(default=None)
    rates: tuple[float, ...] = field(default=())

    def line(self, now: Progress) -> str:
        """Take the newest reading and describe it in one line."""
        self._measure(now)
        if now.phase in {"starting", "waiting"}:
            return (
                _printable(f"waiting for {'; '.join(now.missing)}") if now.missing else "tasks are starting"
            )
        share = min(now.global_step / now.last_step, 1.0) if now.last_step else 0.0
        filled = round(share * BAR_WIDTH)
        parts = [
            f"[{'#' * filled}{'-' * (BAR_WIDTH - filled)}] {share:4.0%}",
            f"step {now.global_step}/{now.last_step}",
        ]
        if now.loss is not None:
            parts.append(f"loss {now.loss:.4f}")
        if self.rates and now.phase == "training":
            parts += [_rates(self.rates), _time_left(now, sum(self.rates))]
        if now.phase not in {"training", "finished"}:
            parts.append(f"{now.phase}: {now.reason}" if now.reason else now.phase)
        return _printable("  ".join(part for part in parts if part))

    def _measure(self, now: Progress) -> None:
        before = self.previous
        # A restored run jumps to the contributions of its checkpoint before it trains.
        if before and before.phase == "training" and now.wall > before.wall:
            seconds = now.wall - before.wall
            self.rates = tuple(
                max(after - earlier, 0) / seconds
                for earlier, after in zip(before.contributions, now.contributions, strict=False)
            )
        if before is None or now.wall > before.wall:
            self.previous = now


def _rates(rates: Sequence[float]) -> str:
    if len(rates) <= WORKERS_SHOWN:
        return "  ".join(f"worker{index} {rate:.0f}/s" for index, rate in enumerate(rates))
    return f"{len(rates)} workers, {min(rates):.0f} to {max(rates):.0f} steps/s each"


def _time_left(now: Progress, steps_per_second: float) -> str:
    if steps_per_second <= 0:
        return "no step in the last second"
    seconds = round(max(now.last_step - now.global_step, 0) / steps_per_second)
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{seconds:02} left" if hours else f"{minutes}:{seconds:02} left"


def _printable(text: str) -> str:
    """A host's words must not steer the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _missing_task(entry: object) -> str:
    if not isinstance(entry, Mapping):
        return str(entry)
    return f"{entry.get('task')} at {entry.get('address')} ({entry.get('reason')})"
