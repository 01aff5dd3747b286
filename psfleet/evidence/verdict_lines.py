"""A verdict in words, line by line, for a terminal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from psfleet.evidence.figures import figure_lines
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.verdict import Verdict
from trainer.contract.progress import printable

Kind = Literal["headline", "ok", "failed", "unknown", "open", "figure"]
_MARKS: dict[bool | None, tuple[str, Kind]] = {
    True: ("ok", "ok"),
    False: ("FAILED", "failed"),
    None: ("unknown", "unknown"),
}


def as_lines(verdict: Verdict, folder: Path) -> Iterator[tuple[str, Kind]]:
    """Yield each line and what it tells, so that it can be shown in a fitting colour.

    What the folder holds must not steer the terminal: names of files and reasons are others' words.
    """
    for line, kind in _lines(verdict, folder):
        yield printable(line), kind


def _lines(verdict: Verdict, folder: Path) -> Iterator[tuple[str, Kind]]:
    yield f"{verdict.headline} (run {verdict.run_id})", "headline"
    yield "", "figure"
    width = max(len(check.check) for check in verdict.checks)
    for check in verdict.checks:
        mark, kind = _MARKS[check.ok]
        yield f"  {mark:<8}{check.check.replace('_', ' '):<{width}}  {check.detail}", kind
    if verdict.not_shown:
        yield "", "figure"
    for sentence in verdict.not_shown:
        yield f"  {sentence}", "open"
    yield "", "figure"
    asked = [("asked otherwise", own)] if (own := _own_thresholds(verdict.settings)) else []
    for name, value in [*figure_lines(verdict.figures), *asked, ("run folder", shown(folder))]:
        yield f"  {name:<{width + 8}}  {value}", "figure"


def _own_thresholds(settings: EvidenceSettings) -> str:
    """Say which thresholds are not the usual ones: whoever reads the verdict may not have chosen them."""
    usual = EvidenceSettings().as_dict()
    return ", ".join(
        name if isinstance(value, dict | list) else f"{name} {value} (usually {usual[name]})"
        for name, value in settings.as_dict().items()
        if value != usual[name]
    )


def shown(folder: Path) -> str:
    """Return the folder's path, from here where it lies below."""
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)
