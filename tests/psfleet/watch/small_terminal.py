"""A small terminal: how psfleet draws, and how the screen changes."""

import re

_CONTROL = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Terminal:
    """A screen of `columns` x `rows`; `above` are the rows that were scrolled off, oldest first.

    Knows the sequences that move the cursor up, clear, and turn the wrapping of lines on and off; colours do
    nothing. Any other is an error.
    """

    def __init__(self, columns: int, rows: int) -> None:
        """Begin empty, with the cursor in the upper left."""
        self.columns, self.rows = columns, rows
        self.above: list[str] = []
        self._screen = [""] * rows
        self._row = self._column = 0
        self._wraps = True

    def feed(self, text: str) -> None:
        """Take what a program writes, as the tty hands it on."""
        position = 0
        while position < len(text):
            control = _CONTROL.match(text, position)
            if control:
                self._control(*control.groups())
                position = control.end()
                continue
            self._character(text[position])
            position += 1

    @property
    def text(self) -> list[str]:
        """All rows, those scrolled off first, without empty ones at the end."""
        rows = [row.rstrip() for row in (*self.above, *self._screen)]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def resize(self, columns: int) -> None:
        """Become narrower or wider, and set rows that are too long anew, as most terminals do.

        The cursor stays at its character, as the row that it is on begins where it began.
        """
        before, after = self._screen[: self._row], self._screen[self._row :]
        head = [part for row in before for part in _parts(row, columns)]
        tail = [part for row in after for part in _parts(row, columns)]
        rows = head + tail
        cut = max(len(head) - self.rows + 1, 0)
        self.above += rows[:cut]
        self._screen = (rows[cut:] + [""] * self.rows)[: self.rows]
        self._row, self.columns = len(head) - cut, columns

    def _control(self, parameters: str, kind: str) -> None:
        if kind == "A":
            self._row = max(self._row - int(parameters or 1), 0)
        elif kind in "KJ" and not parameters:
            self._screen[self._row] = self._screen[self._row][: self._column]
            if kind == "J":
                self._screen[self._row + 1 :] = [""] * (self.rows - self._row - 1)
        elif kind in "hl" and parameters == "?7":
            self._wraps = kind == "h"
        elif kind != "m":
            raise ValueError(f"this terminal does not know {parameters}{kind}")

    def _character(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._next_row()
        elif character < " ":
            raise ValueError(f"this terminal does not know {character!r}")
        else:
            if self._column == self.columns:
                if self._wraps:
                    self._column = 0
                    self._next_row()
                else:
                    self._column -= 1
            row = self._screen[self._row].ljust(self._column)
            self._screen[self._row] = row[: self._column] + character + row[self._column + 1 :]
            self._column += 1

    def _next_row(self) -> None:
        self._row += 1
        if self._row == self.rows:
            self.above.append(self._screen.pop(0))
            self._screen.append("")
            self._row -= 1


def _parts(row: str, columns: int) -> list[str]:
    row = row.rstrip()
    return [row[start : start + columns] for start in range(0, len(row), columns)] or [""]
