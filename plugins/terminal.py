"""The terminal that people see, for an action: its worker process has none, but its parent may."""

from __future__ import annotations

import os

# By how a line of status.yml or doctor.yml is to look (`Kind` in trainer/status.py).
COLORS = {"good": "green", "waiting": "cyan", "bad": "red", "unknown": "yellow", "plain": None}

UNKNOWN_COLUMNS, UNKNOWN_ROWS = 80, 24  # of a terminal that does not tell its size
FEWEST_COLUMNS = 20  # in fewer nothing can be said: the terminal itself cuts what does not fit


def open_terminal() -> int | None:
    """Return a descriptor of the terminal that the parent writes to, None where there is none."""
    try:
        terminal = os.open(f"/proc/{os.getppid()}/fd/1", os.O_WRONLY | os.O_NOCTTY)
    except OSError:
        return None
    if os.isatty(terminal):
        return terminal
    os.close(terminal)
    return None


def size_of(terminal: int) -> os.terminal_size:
    """Return how many columns and rows it has now: `FEWEST_COLUMNS` where it has fewer."""
    try:
        size = os.get_terminal_size(terminal)
    except OSError:
        size = os.terminal_size((0, 0))
    columns = max(size.columns or UNKNOWN_COLUMNS, FEWEST_COLUMNS)
    return os.terminal_size((columns, size.lines or UNKNOWN_ROWS))


def terminal_columns() -> int:
    """Return the width of the terminal, or 0 where there is none."""
    terminal = open_terminal()
    if terminal is None:
        return 0
    columns = size_of(terminal).columns
    os.close(terminal)
    return columns
