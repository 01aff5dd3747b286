"""Draws a run that is going on: as a block of rows for a terminal, as a line for a log."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rich.text import Text

from psfleet.watch.console import PlaybookConsole
from psfleet.watch.pace import Pace, Trend
from psfleet.watch.screen_text import clock, rate_of
from psfleet.watch.task_states import WAITED_FOR, TaskState, serving_pieces, worker_pieces
from trainer.contract.progress import Progress, printable

BAR_COLUMNS = 60
FEWEST_BAR_COLUMNS = 8
FILLED, EMPTY = "━─"
CURVE = "▁▂▃▄▅▆▇█"
CURVE_POINTS = 12
CURVE_HEIGHT = math.log(1.5)
SENTENCE_ROWS = 3
# Seconds. A shorter standstill is not worth a word, because steps take time.
STILL_WORTH_A_WORD = 5.0
GAP = "   "


@dataclass(frozen=True)
class Snapshot:
    """What one poll found, as the live block shows it.

    - `elapsed` is the age of the run in seconds, and `still_seconds` the time since the global step advanced.
    - `trend` and `curve` are those of the loss, as `RunHistory` returns them.
    - `saved_step` is the global step of the newest checkpoint, None before the first. `copied_steps` is {task
      on another host: step of the newest copy of a checkpoint there}.
    - `workers` are the tasks that train, `serving` the others. `unit` is the noun of the workers' rates.
    - `full_disk_host` is the name of a host whose disk is full, or "". `away` are sentences about tasks that
      do not run.
    """

    progress: Progress
    elapsed: float
    pace: Pace = field(default_factory=Pace)
    trend: Trend = ""
    curve: tuple[float, ...] = ()
    still_seconds: float = 0.0
    saved_step: int | None = None
    copied_steps: Mapping[str, int] = field(default_factory=dict)
    workers: tuple[TaskState, ...] = ()
    serving: tuple[TaskState, ...] = ()
    unit: str = "steps"
    full_disk_host: str = ""
    away: tuple[str, ...] = ()

    @property
    def urgent(self) -> tuple[str, tuple[str, ...]]:
        """(the phase, sorted names of the awaited tasks). A log gets a line as soon as this changes."""
        return self.progress.phase, tuple(sorted(self.progress.awaited_tasks))

    @property
    def shown_state(self) -> tuple[object, ...]:
        """Everything that is shown, except times and rates, as a value to compare.

        A log gets its next regular line only if this changed.
        """
        states = [(task.name, task.trouble, task.runs) for task in (*self.workers, *self.serving)]
        saved = (self.saved_step, *self.copied_steps.items())
        return replace(self.progress, wall=0.0, elapsed=None), saved, self.full_disk_host, *states

    @property
    def is_stalled(self) -> bool:
        """Whether the last step was long ago: over 5 s, and over three times the time of a usual step.

        False after the run's last step.
        """
        if 0 < self.progress.last_step <= self.progress.global_step:
            return False
        return self.still_seconds > max(STILL_WORTH_A_WORD, 3 * (self.pace.seconds_per_step or 0.0))


def block_rows(view: Snapshot, console: PlaybookConsole, rows: int, *, verbose: bool = False) -> list[Text]:
    """Return at most `rows` rows that fit the console; with `verbose`, each task has its own row.

    They are: the bar and the figures, the tasks, then sentences about problems. If there are too many rows,
    the last ones are left out.
    """
    bar = _bar(view, console.width) if view.progress.last_step else []
    head = [*bar, *flow(_figures(view, curve=not console.options.ascii_only), console.width)]
    troubles = [row for sentence in _sentences(view) for row in _wrapped(sentence, console)]
    rest = flow(_rest(view), console.width)
    tasks = flow(_workers(view), console.width) + rest
    if verbose and view.workers:
        each = [row for task in full_tasks(view) for row in flow([task], console.width)] + rest
        room = max(rows - len(head) - len(troubles), 1)
        # The summary covers the tasks that do not fit.
        tasks = each if len(each) <= room else (tasks + each)[:room]
    return [*head, *tasks, *troubles][:rows]


def log_line(view: Snapshot) -> str:
    """Return the snapshot as one line of text, without colours: the age, the step, the figures, the tasks.

    The sentences of the block follow.
    """
    share = [_percent(view), _step(view)] if view.progress.last_step else [_step(view)]
    pieces = [*_figures(view, with_clock=False), *_workers(view), *_rest(view), *_sentences(view)]
    texts = [clock(view.elapsed), *share, *(piece.plain for piece in pieces)]
    return printable("  ".join(text for text in texts if text))


def full_tasks(view: Snapshot) -> list[Text]:
    """Return a line for each task, with everything that is known about it: the workers, then the others."""
    return [task.full(view.unit) for task in (*view.workers, *view.serving)]


def flow(pieces: Iterable[Text], columns: int) -> list[Text]:
    """Return the pieces in rows of at most `columns`, as many pieces side by side as fit.

    A piece that is wider than `columns` is cut.
    """
    rows: list[Text] = []
    for piece in pieces:
        piece.truncate(columns, overflow="ellipsis")
        if rows and rows[-1].cell_len + len(GAP) + piece.cell_len <= columns:
            rows[-1] = Text.assemble(rows[-1], GAP, piece)
        else:
            rows.append(piece)
    return rows


def _wrapped(sentence: Text, console: PlaybookConsole) -> list[Text]:
    """Return a sentence in at most SENTENCE_ROWS (3) rows of the console's width.

    If the sentence is longer, the last row ends with "…".
    """
    rows = list(sentence.wrap(console, console.width))
    if len(rows) > SENTENCE_ROWS:
        rows[SENTENCE_ROWS - 1].append("…").truncate(console.width, overflow="ellipsis")
    return rows[:SENTENCE_ROWS]


def _bar(view: Snapshot, columns: int) -> list[Text]:
    # The text has the same width at the first step and the last.
    step = _step(view).ljust(2 * len(str(view.progress.last_step)) + len("step /"))
    pieces = [f"{_percent(view):>4}", step]
    width = min(columns - sum(len(GAP + piece) for piece in pieces), BAR_COLUMNS)
    if width >= FEWEST_BAR_COLUMNS:
        filled = int(_share(view) * width)
        pieces.insert(0, FILLED * filled + EMPTY * (width - filled))
    return flow(map(Text, pieces), columns)[:1]


def _figures(view: Snapshot, *, curve: bool = False, with_clock: bool = True) -> list[Text]:
    now, pace = view.progress, view.pace
    training = now.phase == "training"
    texts = [] if now.last_step or not with_clock else [_step(view)]
    if training and now.global_step and pace.steps_per_second is not None and not view.is_stalled:
        texts.append(rate_of(pace.steps_per_second, "steps"))
    if now.loss is not None:
        words = [
            f"loss {_loss(now.loss)}",
            _curve(view.curve) if curve else "",
            view.trend if training else "",
        ]
        texts.append(" ".join(word for word in words if word))
    if training and pace.seconds_left is not None and not view.is_stalled:
        texts.append(f"{clock(pace.seconds_left)} left")
    if with_clock:
        texts.append(f"{clock(view.elapsed)} elapsed")
    return [Text(text) for text in texts if text]


def _workers(view: Snapshot) -> list[Text]:
    # Before the first step, only awaited workers are worth showing.
    worth_showing = any(
        worker.contributed or worker.rate or worker.trouble not in {"", WAITED_FOR} for worker in view.workers
    )
    return worker_pieces(view.workers) if worth_showing else []


def _rest(view: Snapshot) -> list[Text]:
    """Return texts about the tasks that only serve, the saved checkpoint, its copies, the last evaluation.

    What is unknown has no text.
    """
    saved = [] if view.saved_step is None else [Text(f"saved at step {view.saved_step}")]
    copied = [Text(f"copied to {task} at step {step}") for task, step in view.copied_steps.items()]
    evaluated = [Text(f"evaluated: {of}")] if (of := view.progress.evaluation) else []
    return serving_pieces(view.serving) + saved + copied + evaluated


def _sentences(view: Snapshot) -> list[Text]:
    """Return the sentences below the figures: what the run awaits, how it ended, what a program printed.

    A full disk comes first, tasks that do not run come last; [] if there is nothing to say.
    """
    now, waiting = view.progress, view.progress.waiting
    pieces: list[tuple[str, str]] = []
    if now.phase in {"starting", "waiting"}:
        pieces = [(waiting or "tasks are starting", "warning" if waiting and now.global_step else "plain")]
    elif now.phase == "finished":
        pieces = [(f"finished: {now.reason}" if now.reason else "finished", "good")]
    elif now.phase != "training":
        text = ": ".join(part for part in (now.phase, now.reason or waiting) if part)
        pieces = [(text, "warning" if now.phase == "failed" else "plain")]
    else:
        if waiting or view.is_stalled:
            pieces.append((waiting or f"no step for {clock(view.still_seconds)}", "warning"))
        if now.last_line:
            pieces.append((f"| {now.last_line[:120]}", "plain"))
        if not (pieces or now.last_step or now.global_step):
            pieces.append(("running; it has printed nothing, and psfleet has seen no step", "plain"))
    if view.full_disk_host:
        pieces.insert(0, (f"No space left on {view.full_disk_host}", "warning"))
    pieces += [(sentence, "warning") for sentence in view.away if not now.is_over]
    return [Text(printable(text), style) for text, style in pieces]


def _percent(view: Snapshot) -> str:
    # Round down, so that 100% means complete.
    return f"{int(_share(view) * 100)}%"


def _share(view: Snapshot) -> float:
    return min(view.progress.global_step / view.progress.last_step, 1.0)


def _step(view: Snapshot) -> str:
    now = view.progress
    if now.last_step:
        return f"step {now.global_step}/{now.last_step}"
    return f"step {now.global_step}" if now.global_step else ""


def _loss(loss: float) -> str:
    return f"{loss:.4f}" if 1e-3 <= abs(loss) < 1e4 or not loss else f"{loss:.3g}"


def _curve(values: Sequence[float]) -> str:
    """Return the values as a curve of block characters, one for each value.

    Return "" if there are fewer than CURVE_POINTS (12), or if one is not positive. The scale is logarithmic,
    because a loss falls by factors.
    """
    if len(values) < CURVE_POINTS or min(values) <= 0:
        return ""
    values = [math.log(value) for value in values]
    # A minimum height keeps mere noise from filling the whole curve.
    low = min(values)
    scale = (len(CURVE) - 1) / max(max(values) - low, CURVE_HEIGHT)
    return "".join(CURVE[round((value - low) * scale)] for value in values)
