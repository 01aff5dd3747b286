"""Where people watch a run: a block that is rewritten in place on a terminal, lines elsewhere.

An action runs in a worker process, which has no terminal: what it shows goes through its parent's Display.
"""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any, TextIO

from ansible.utils.color import stringc
from ansible.utils.display import Display

from plugins.terminal import open_terminal, size_of
from trainer.progress import printable
from trainer.progress_block import ASCII, GAP, INDENT, UNICODE, Glyphs, Row, View, block, full_tasks, line
from trainer.progress_notes import Note, clock
from trainer.progress_tasks import Piece

display = Display()

MOST_ROWS = 40
# Ansible itself tells of each command from here on, in the midst of whatever is drawn.
VERBOSITY_OF_COMMANDS = 3
COLORS = {"warning": "yellow", "good": "green"}
LINUX_CONSOLE, DUMB = "linux", "dumb"

HANGING_INDENT = 10 * " "
CLEAR_BELOW = "\r\x1b[J"
CLEAR_REST = "\x1b[K"
WRAP_OFF, WRAP_ON = "\x1b[?7l", "\x1b[?7h"


class Screen:
    """Shows views and notes; `parting` is said where somebody ends the watching. A context manager.

    On a terminal the cursor rests on an empty row above the block. So a terminal that was made narrower, and
    lines that others write, do no harm: all below the cursor is drawn anew at the next look.
    """

    def __init__(self, plain_seconds: float, parting: Sequence[str]) -> None:
        """Without a terminal, show a line every `plain_seconds`."""
        self._plain_seconds, self._parting = plain_seconds, parting
        self._parent = os.getppid()
        self._terminal = _open_terminal()
        self._glyphs = glyphs_for(os.environ, sys.__stdout__)
        self._verbose = display.verbosity > 0
        self._told_at = -plain_seconds
        self._said: tuple[str, tuple[str, ...]] | None = None
        self._drawn: list[Row] = []
        self._view: View | None = None
        self._told: View | None = None
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Screen:
        """Leave the terminal in order also where the watching is interrupted."""
        if self._terminal is not None:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._interrupted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last view standing."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._terminal is not None:
            self._draw("".join(f"{_text(row)}\n" for row in self._drawn))
            os.close(self._terminal)
            self._terminal = None
        elif self._view is not None and self._view is not self._told:
            self._tell(self._view)

    @property
    def on_terminal(self) -> bool:
        """Whether it draws a block, rather than to write lines."""
        return self._terminal is not None

    @property
    def watched(self) -> bool:
        """Whether there is still somebody to show it to: the playbook that this process belongs to."""
        return os.getppid() == self._parent

    def show(self, view: View) -> None:
        """Show where the run stands."""
        self._view = view
        changed = view.said != self._said
        self._said = view.said
        due = changed or time.monotonic() - self._told_at >= self._plain_seconds
        if self._terminal is not None:
            size = size_of(self._terminal)
            rows = max(min(size.lines - 2, MOST_ROWS), 0)
            self._drawn = block(view, size.columns - 1, rows, self._glyphs, verbose=self._verbose)
            self._draw(drawing(self._drawn))
        if due:
            self._tell(view)

    def note(self, note: Note, seconds: float) -> None:
        """Say something that stays on the screen, so many seconds into the run."""
        mark, color = ("+", COLORS["good"]) if note.good else ("!", COLORS["warning"])
        self.say(f"{INDENT}{mark} {clock(seconds)}  {note.text}", color)

    def say(self, text: str, color: str | None = None) -> None:
        """Show a line that stays; on a terminal in as many rows as it needs."""
        if self._terminal is None:
            display.display(printable(text), color=color)
            return
        width = size_of(self._terminal).columns - 1
        rows = textwrap.wrap(printable(text), width, subsequent_indent=HANGING_INDENT, break_on_hyphens=False)
        self._draw("")
        display.display("\n".join(rows), color=color)
        self._draw(drawing(self._drawn))

    def _tell(self, view: View) -> None:
        """Show lines that stand for themselves; beside a terminal only Ansible's own log has them."""
        self._told, self._told_at = view, time.monotonic()
        if self._terminal is not None:
            display.display(line(view), log_only=True)
            return
        display.display(line(view))
        if self._verbose:
            for task in full_tasks(view):
                display.display(f"{clock(view.elapsed)}  {task.text}")

    def _draw(self, text: str) -> None:
        display.display(CLEAR_BELOW + text, newline=False, screen_only=True)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        # The parent does not listen any more: what it is asked to display now may be lost.
        rows = [_text(row) for row in self._drawn]
        parting = [f"{INDENT}{words}" for words in self._parting]
        text = "".join(f"{words}\n" for words in ["", *rows, *parting])
        terminal, self._terminal, self._view = self._terminal, None, None
        if terminal is not None:
            os.write(terminal, f"{CLEAR_BELOW}{text}".encode())
        handler = self._handlers.get(number)
        if callable(handler):
            handler(number, frame)


def drawing(rows: Iterable[Row]) -> str:
    """Return what draws the rows below the cursor, and puts it back to where it was."""
    drawn = [f"\n{_text(row)}{CLEAR_REST}" for row in rows]
    return f"{WRAP_OFF}{''.join(drawn)}{WRAP_ON}\r\x1b[{len(drawn)}A" if drawn else ""


def glyphs_for(environment: Mapping[str, str], stream: TextIO | None) -> Glyphs:
    """Return the characters that a terminal can show, by its locale and kind.

    Ansible runs in UTF-8 alone, and Python makes it of the locale "C": what people set tells what they see.
    """
    names = ("LC_ALL", "LANG") if environment.get("LC_CTYPE") == "C.UTF-8" else ("LC_ALL", "LC_CTYPE", "LANG")
    locale = next((environment[name] for name in names if environment.get(name)), "")
    encoding = str(getattr(stream, "encoding", "") or "")
    spoken = all("utf8" in text.lower().replace("-", "") for text in (locale, encoding))
    return UNICODE if spoken and environment.get("TERM") != LINUX_CONSOLE else ASCII


def _text(row: Row) -> str:
    return INDENT + GAP.join(_colored(piece) for piece in row)


def _colored(piece: Piece) -> str:
    color = COLORS.get(piece.style)
    return stringc(piece.text, color) if color else piece.text


def _open_terminal() -> int | None:
    """Return the terminal, None where it can show no block or there is none."""
    if display.verbosity >= VERBOSITY_OF_COMMANDS or os.environ.get("TERM", DUMB) == DUMB:
        return None
    return open_terminal()
