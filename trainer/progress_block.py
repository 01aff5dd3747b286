"""A run that is going on, drawn for people: a block of rows for a terminal, a line for a log."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trainer.progress import Progress, printable
from trainer.progress_history import Pace, Trend
from trainer.progress_notes import clock, names, rate_of
from trainer.progress_tasks import Piece, TaskState, serving_pieces, worker_pieces

BAR_COLUMNS = 60
FEWEST_BAR_COLUMNS = 8
CURVE_POINTS = 12
CURVE_HEIGHT = math.log(1.5)
LOG_CHARACTERS = 120
SENTENCE_ROWS = 3
# A step takes its time: only what lasts longer is worth a word.
STILL_WORTH_A_WORD = 5.0
INDENT, GAP = "  ", "   "

Row = tuple[Piece, ...]


@dataclass(frozen=True)
class Glyphs:
    """The characters of bars and curves; `curve` has the low ones first, and may be empty."""

    filled: str
    empty: str
    before: str = ""
    after: str = ""
    curve: str = ""


UNICODE = Glyphs("━", "─", curve="▁▂▃▄▅▆▇█")
ASCII = Glyphs("#", "-", "[", "]")


@dataclass(frozen=True)
class View:
    """All that is shown of a run at one moment. `elapsed`, `still_seconds` and `looked_seconds` are seconds.

    `still_seconds`: since the global step advanced; `looked_seconds`: since the ports were probed, None where
    they were not; `unit`: what the workers' rates count.
    """

    progress: Progress
    elapsed: float
    pace: Pace = field(default_factory=Pace)
    trend: Trend = ""
    curve: tuple[float, ...] = ()
    still_seconds: float = 0.0
    saved_step: int | None = None
    workers: tuple[TaskState, ...] = ()
    serving: tuple[TaskState, ...] = ()
    looked_seconds: float | None = None
    unit: str = "steps"

    @property
    def said(self) -> tuple[str, tuple[str, ...]]:
        """What a log hears of at once when it changes: the phase, and who is waited for."""
        return self.progress.phase, tuple(sorted(task.partition(" ")[0] for task in self.progress.missing))


def block(view: View, columns: int, rows: int, glyphs: Glyphs, *, verbose: bool = False) -> list[Row]:
    """Return at most `rows` rows, none wider than `columns`; with `verbose` each task has its own."""
    head = [_bar(view, columns, glyphs), *flow(_figures(view, glyphs), columns)]
    troubles = [row for piece in _words(view) for row in _by_words(piece, columns)]
    tasks = flow(_workers(view), columns) + flow(_rest(view), columns)
    if verbose and view.workers:
        each = [flow([task], columns)[0] for task in full_tasks(view)] + flow(_rest(view), columns)
        room = max(rows - len(head) - len(troubles), 1)
        # Those that do not fit are in the sum.
        tasks = each if len(each) <= room else (tasks + each)[:room]
    shown = [row for row in [*head, *tasks, *troubles] if row]
    return [tuple(_for(piece, glyphs) for piece in row) for row in shown[:rows]]


def line(view: View) -> str:
    """Return the same in one line that stands for itself."""
    bar = [_percent(view), _step(view)] if view.progress.last_step else [_step(view)]
    pieces = [
        Piece(clock(view.elapsed)),
        *(Piece(text) for text in bar),
        *_figures(view, ASCII, with_clock=False),
        *_workers(view),
        *_rest(view),
        *_words(view),
    ]
    return printable("  ".join(piece.text for piece in pieces if piece.text))


def full_tasks(view: View) -> list[Piece]:
    """Return a line for each task, with all that is known of it."""
    return [task.full(view.unit, view.looked_seconds) for task in (*view.workers, *view.serving)]


def flow(pieces: Iterable[Piece], columns: int) -> list[Row]:
    """Set pieces side by side, in as many rows as they need; one that is too wide for a row is cut."""
    rows: list[list[Piece]] = []
    left = 0
    for piece in pieces:
        text = cut(piece.text, columns - len(INDENT))
        if not text:
            continue
        needed = columns_of(text) + len(GAP)
        if not rows or needed > left:
            rows.append([])
            left = columns - len(INDENT) + len(GAP)
        rows[-1].append(Piece(text, piece.style))
        left -= needed
    return [tuple(row) for row in rows]


def _by_words(piece: Piece, columns: int) -> list[Row]:
    """Set a sentence in a few rows, so that a terminal that is narrow shows its end, too."""
    parts = textwrap.wrap(printable(piece.text), max(columns - len(INDENT), 1), break_on_hyphens=False)
    shown = [*parts[: SENTENCE_ROWS - 1], " ".join(parts[SENTENCE_ROWS - 1 :])]
    return [row for part in shown for row in flow([Piece(part, piece.style)], columns)]


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(_columns_of(character) for character in text)


def cut(text: str, columns: int) -> str:
    """Return as much of a text as fits, with dots where something is left out."""
    text = printable(text)
    if columns_of(text) <= columns:
        return text
    kept, left = [], columns - 3
    for character in text:
        left -= _columns_of(character)
        if left < 0:
            break
        kept.append(character)
    return "".join(kept) + "..."[: max(columns, 0)]


def _columns_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _bar(view: View, columns: int, glyphs: Glyphs) -> Row:
    if not view.progress.last_step:
        return ()
    percent, step = _percent(view), _step(view)
    # As wide at the first step as at the last.
    longest = 2 * len(str(view.progress.last_step)) + len("100%step /")
    taken = len(INDENT) + 2 * len(GAP) + longest + len(glyphs.before + glyphs.after)
    width = min(columns - taken, BAR_COLUMNS)
    texts = [percent, step]
    if width >= FEWEST_BAR_COLUMNS:
        filled = int(_share(view) * width)
        bar = glyphs.filled * filled + glyphs.empty * (width - filled)
        texts = [f"{glyphs.before}{bar}{glyphs.after}", f"{percent:>4}", step]
    rows = flow([Piece(text) for text in texts], columns)
    return rows[0]


def _figures(view: View, glyphs: Glyphs, *, with_clock: bool = True) -> list[Piece]:
    now, pace = view.progress, view.pace
    training = now.phase == "training"
    pieces = [] if now.last_step or not with_clock else [Piece(_step(view))]
    if training and pace.steps_per_second is not None and not _stands(view):
        pieces.append(Piece(rate_of(pace.steps_per_second, "steps")))
    if now.loss is not None:
        words = [f"loss {_loss(now.loss)}", _curve(view.curve, glyphs), view.trend if training else ""]
        pieces.append(Piece(" ".join(word for word in words if word)))
    if training and pace.seconds_left is not None and not _stands(view):
        pieces.append(Piece(f"{clock(pace.seconds_left)} left"))
    if with_clock:
        pieces.append(Piece(f"{clock(view.elapsed)} elapsed"))
    return pieces


def _workers(view: View) -> list[Piece]:
    # Before the first step there is nothing to say of them but who is waited for.
    return worker_pieces(view.workers) if any(worker.contributed for worker in view.workers) else []


def _rest(view: View) -> list[Piece]:
    """Describe the tasks that only serve, and what is saved."""
    pieces = serving_pieces(view.serving)
    if view.saved_step is not None:
        pieces.append(Piece(f"saved at step {view.saved_step}"))
    return pieces


def _words(view: View) -> list[Piece]:
    """Say what is to be said beside figures: what the run waits for, how it ended, what a program printed."""
    now = view.progress
    waiting = f"waiting for {names(now.missing)}" if now.missing else ""
    if now.phase in {"starting", "waiting"}:
        return [Piece(waiting or "tasks are starting", "warning" if waiting and now.global_step else "plain")]
    if now.phase == "finished":
        return [Piece("finished", "good")]
    if now.phase != "training":
        text = ": ".join(part for part in (now.phase, now.reason or waiting) if part)
        return [Piece(text, "warning" if now.phase == "failed" else "plain")]
    pieces = []
    if waiting:
        pieces.append(Piece(waiting, "warning"))
    elif _stands(view):
        pieces.append(Piece(f"no step for {clock(view.still_seconds)}", "warning"))
    if now.last_line:
        pieces.append(Piece(f"| {now.last_line[:LOG_CHARACTERS]}"))
    return pieces


def _stands(view: View) -> bool:
    usual = view.pace.seconds_per_step or 0.0
    return view.still_seconds > max(STILL_WORTH_A_WORD, 3 * usual)


def _share(view: View) -> float:
    return min(view.progress.global_step / view.progress.last_step, 1.0)


def _percent(view: View) -> str:
    # Only what is complete is 100%.
    return f"{int(_share(view) * 100)}%"


def _step(view: View) -> str:
    now = view.progress
    if now.last_step:
        return f"step {now.global_step}/{now.last_step}"
    return f"step {now.global_step}" if now.global_step else ""


def _loss(loss: float) -> str:
    return f"{loss:.4f}" if 1e-3 <= abs(loss) < 1e4 or not loss else f"{loss:.3g}"


def _curve(values: Sequence[float], glyphs: Glyphs) -> str:
    """Draw values as a curve of as many characters, by their logarithms: a loss falls by factors."""
    if not glyphs.curve or len(values) < CURVE_POINTS:
        return ""
    if min(values) <= 0:
        return ""
    values = [math.log(value) for value in values]
    # What is drawn over the whole height is no mere noise.
    low = min(values)
    scale = (len(glyphs.curve) - 1) / max(max(values) - low, CURVE_HEIGHT)
    return "".join(glyphs.curve[round((value - low) * scale)] for value in values)


def _for(piece: Piece, glyphs: Glyphs) -> Piece:
    if glyphs is not ASCII:
        return piece
    return Piece(piece.text.encode("ascii", "replace").decode("ascii"), piece.style)
