"""Shows a run to people: on a terminal as a block that is redrawn in place, elsewhere as lines.

An action runs in a worker process without a terminal, so its output goes through its parent's Display. rich's
`Live` does not fit: it expects to be the only writer, and a terminal that keeps its width.
"""

import os
import signal
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from psfleet.watch.console import INDENT, console_for, open_terminal, print_lines, size_of
from psfleet.watch.live_block import Snapshot, block_rows, full_tasks, log_line
from psfleet.watch.notices import Notice
from psfleet.watch.screen_text import clock
from psfleet.watch.terminal import escaping_display

display = escaping_display()

MOST_ROWS = 40
# From this verbosity on, Ansible itself prints each command, into the middle of a drawing.
VERBOSITY_OF_COMMANDS = 3
DUMB = "dumb"

CLEAR_BELOW = "\r\x1b[J"
CLEAR_REST = "\x1b[K"
WRAP_OFF, WRAP_ON = "\x1b[?7l", "\x1b[?7h"


class Screen:
    """Shows snapshots and notices. A context manager; if it is interrupted, it prints the lines `parting`.

    On a terminal, the cursor stays on an empty row above the block. So neither a narrower terminal nor the
    lines of other writers do harm: the next poll redraws everything below the cursor.
    """

    def __init__(self, plain_seconds: float, parting: Sequence[str], inventory: Sequence[str]) -> None:
        """Find the terminal; without one, print a line every `plain_seconds` if something has changed.

        `parting` are lines for the user, printed if the watch is interrupted on a terminal. `inventory` is
        Ansible's variable `ansible_inventory_sources`.
        """
        self._plain_seconds, self._parting = plain_seconds, parting
        self._parent = os.getppid()
        draws = display.verbosity < VERBOSITY_OF_COMMANDS and os.environ.get("TERM", DUMB) != DUMB
        self._terminal = open_terminal() if draws else None
        self._console = console_for(self._terminal, inventory)
        self._verbose = display.verbosity > 0
        self._logged_at = -plain_seconds
        self._urgent: tuple[str, tuple[str, ...]] | None = None
        self._drawn: list[str] = []
        self._view: Snapshot | None = None
        self._logged: Snapshot | None = None
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> "Screen":
        """Return the screen; on a terminal, restore it and print the parting lines at SIGINT and SIGTERM."""
        if self._terminal is not None:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._interrupted)
        return self

    def __exit__(self, *_error: object) -> None:
        """Leave the last snapshot on the screen; without a terminal, print it if it is not printed yet."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._terminal is not None:
            self._draw("".join(f"{row}\n" for row in self._drawn))
            os.close(self._terminal)
            self._terminal = None
        elif self._view is not None and self._has_changed(self._view):
            self._log(self._view)

    @property
    def on_terminal(self) -> bool:
        """Whether the screen draws a block on a terminal; False if it writes lines, and after the context."""
        return self._terminal is not None

    @property
    def watched(self) -> bool:
        """Whether the playbook that started this process still runs."""
        return os.getppid() == self._parent

    def show(self, view: Snapshot) -> None:
        """Show a snapshot of the run: redraw the block, and write a line to the log if it is time for one.

        It is time at once if `view.urgent` has changed, or if `view.shown_state` has changed and
        `plain_seconds` have passed since the last line.
        """
        self._view = view
        is_urgent = view.urgent != self._urgent
        self._urgent = view.urgent
        if self._terminal is not None:
            size = size_of(self._terminal)
            self._console.width = size.columns - INDENT
            rows = max(min(size.lines - 2, MOST_ROWS), 0)
            drawn = self._console.lines(*block_rows(view, self._console, rows, verbose=self._verbose))
            self._drawn = [" " * INDENT + row for row in drawn]
            self._draw(drawing(self._drawn))
        if is_urgent or (
            time.monotonic() - self._logged_at >= self._plain_seconds and self._has_changed(view)
        ):
            self._log(view)

    def _has_changed(self, view: Snapshot) -> bool:
        return self._logged is None or view.shown_state != self._logged.shown_state

    def note(self, notice: Notice, seconds: float) -> None:
        """Print a notice, which stays on the screen above the block; `seconds` is the age of the run."""
        mark, style = ("+", "good") if notice.good else ("!", "warning")
        row = Table.grid(padding=(0, INDENT, 0, 0))
        row.add_column(no_wrap=True)
        row.add_row(f"{' ' * INDENT}{mark} {clock(seconds)}", self._console.words(notice.text), style=style)
        self._stay(row)

    def say(self, text: str) -> None:
        """Print a text, which stays on the screen above the block, in as many rows as it needs."""
        self._stay(self._console.words(text))

    def _stay(self, what: RenderableType) -> None:
        if self._terminal is None:
            print_lines(self._console.lines(what))
            return
        self._console.width = size_of(self._terminal).columns
        self._draw("")
        print_lines(self._console.lines(what))
        self._draw(drawing(self._drawn))

    def _log(self, view: Snapshot) -> None:
        """Write the snapshot as a line to Ansible's log, and, without a terminal, to standard output.

        With -v and without a terminal, a line for each task follows.
        """
        self._logged, self._logged_at = view, time.monotonic()
        on_terminal = self._terminal is not None
        display.display(log_line(view), log_only=on_terminal)
        if self._verbose and not on_terminal:
            for task in full_tasks(view):
                display.display(f"{clock(view.elapsed)}  {task.plain}")

    def _draw(self, text: str) -> None:
        display.display(CLEAR_BELOW + text, newline=False, screen_only=True)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        # The parent no longer listens, so what it is asked to display now may be lost.
        parting = [" " * INDENT + self._console.words(words).plain for words in self._parting]
        text = "".join(f"{row}\n" for row in ["", *self._drawn, *parting])
        terminal, self._terminal, self._view = self._terminal, None, None
        if terminal is not None:
            os.write(terminal, f"{CLEAR_BELOW}{text}".encode())
        handler = self._handlers.get(number)
        if callable(handler):
            handler(number, frame)


def drawing(rows: Sequence[str]) -> str:
    """Return the text that draws the rows below the cursor and puts the cursor back; "" for no rows.

    Rows that are too wide are cut by the terminal.
    """
    drawn = "".join(f"\n{row}{CLEAR_REST}" for row in rows)
    return f"{WRAP_OFF}{drawn}{WRAP_ON}\r\x1b[{len(rows)}A" if rows else ""
