"""The console that actions draw on: the terminal of the playbook, which is the action's parent process."""

import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TextIO

from ansible import constants
from ansible.utils.color import ANSIBLE_COLOR
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from psfleet.watch.hints import with_inventory
from psfleet.watch.terminal import escaped, escaping_display
from trainer.contract.progress import printable

display = escaping_display()

# The styles of good news, of what is in progress, of failures, of warnings, and of plain text.
STYLES = {"good": "green", "waiting": "cyan", "bad": "red", "warning": "yellow", "plain": "none"}
IN_ASCII = str.maketrans("━─…", "#-~")
INDENT, GAP = 2, 2
ANY_WIDTH = 100_000
UNKNOWN_COLUMNS, UNKNOWN_ROWS = 80, 24  # for a terminal that does not report its size
FEWEST_COLUMNS = 20  # a narrower terminal cuts the lines itself

# Blanks at the end of a line. The lookbehind keeps the search fast: only the first of several blanks is
# tried.
_FILLING = re.compile(r"(?<! ) +(?=(?:\x1b\[0m)?$)")


class PlaybookConsole(Console):
    """Draws lines of at most `columns` columns (0: any width), with the characters of an encoding.

    It draws into memory: `lines` returns what to print.
    """

    def __init__(
        self,
        columns: int = 0,
        encoding: str = "utf-8",
        inventory: Sequence[str] = constants.DEFAULT_HOST_LIST,
    ) -> None:
        """Use colours if Ansible does. `inventory` is Ansible's variable `ansible_inventory_sources`."""
        super().__init__(
            file=io.TextIOWrapper(io.BytesIO(), encoding),
            width=columns or ANY_WIDTH,
            height=UNKNOWN_ROWS,
            force_terminal=True,
            color_system="standard" if ANSIBLE_COLOR else None,
            no_color=False,
            legacy_windows=False,
            highlight=False,
            theme=Theme(STYLES),
        )
        self._inventory = inventory

    def words(self, text: str, style: str = "plain") -> Text:
        """Return the text in this style (of `STYLES`), without interpreting markup in it.

        Characters that steer a terminal are escaped. Each `ansible-playbook` command in the text gets this
        console's inventory as an option.
        """
        return Text(printable(with_inventory(text, self._inventory)), style)

    def indented(self, text: str, style: str = "plain") -> Padding:
        """Return `words(text, style)` with all of its rows indented by two columns, wrapped rows included."""
        return Padding(self.words(text, style), (0, 0, 0, INDENT), expand=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments to draw, escaped once more in case a text was not made safe before."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else escaped(text), style, control)

    def lines(self, *what: RenderableType) -> list[str]:
        """Return the lines that show these objects, one below the other, without blanks at their ends.

        On a console for ASCII, other characters are replaced.
        """
        with self.capture() as capture:
            self.print(Group(*what))
        text = capture.get()
        if self.options.ascii_only:
            text = text.translate(IN_ASCII).encode("ascii", "replace").decode("ascii")
        return [_FILLING.sub("", line) for line in text.split("\n")[:-1]]

    def width_of(self, what: RenderableType) -> int:
        """Return the number of columns that `what` needs if it is neither cut nor wrapped.

        The width of this console does not matter.
        """
        return Measurement.get(self, self.options.update(width=ANY_WIDTH), what).maximum


def empty_table() -> Table:
    """Return a table without rows and border lines."""
    return Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="plain")


def open_terminal() -> int | None:
    """Return a file descriptor of the terminal to which the parent process writes.

    Return None if the parent writes to a file or a pipe, or may not be examined. The caller closes the
    descriptor.
    """
    try:
        terminal = os.open(f"/proc/{os.getppid()}/fd/1", os.O_WRONLY | os.O_NOCTTY)
    except OSError:
        return None
    if os.isatty(terminal):
        return terminal
    os.close(terminal)
    return None


def size_of(terminal: int) -> os.terminal_size:
    """Return (usable columns, rows) of a terminal, given by its file descriptor.

    In the last column lines would wrap, so it is left out. A terminal that reports no size counts as 80
    columns and 24 rows; there are at least 19 usable columns.
    """
    try:
        size = os.get_terminal_size(terminal)
    except OSError:
        size = os.terminal_size((0, 0))
    columns = max(size.columns or UNKNOWN_COLUMNS, FEWEST_COLUMNS)
    return os.terminal_size((columns - 1, size.lines or UNKNOWN_ROWS))


def columns_of_terminal() -> int:
    """Return the usable columns of the terminal to which the parent process writes; 0 without a terminal."""
    terminal = open_terminal()
    if terminal is None:
        return 0
    try:
        return size_of(terminal).columns
    finally:
        os.close(terminal)


def encoding_for(environment: Mapping[str, str], stream: TextIO | None) -> str:
    """Return the encoding that a terminal can show: "utf-8" or "ascii".

    It is "utf-8" only if both the locale in `environment` and the `stream` are UTF-8, and the terminal is not
    Linux' own console (TERM=linux). Ansible runs only in UTF-8: for it, Python replaces the locale "C". So
    the variables that the user set count.
    """
    names = ("LC_ALL", "LANG") if environment.get("LC_CTYPE") == "C.UTF-8" else ("LC_ALL", "LC_CTYPE", "LANG")
    locale = next((environment[name] for name in names if environment.get(name)), "")
    encoding = str(getattr(stream, "encoding", "") or "")
    is_utf8 = all("utf8" in text.lower().replace("-", "") for text in (locale, encoding))
    return "utf-8" if is_utf8 and environment.get("TERM") != "linux" else "ascii"


def console_for(terminal: int | None, inventory: Sequence[str]) -> PlaybookConsole:
    """Return a console with the size and the encoding of a terminal, given by its file descriptor.

    For None, return a console that draws lines of any width in UTF-8. `inventory` is Ansible's variable
    `ansible_inventory_sources`.
    """
    if terminal is None:
        return PlaybookConsole(inventory=inventory)
    encoding = encoding_for(os.environ, sys.__stdout__)
    return PlaybookConsole(size_of(terminal).columns, encoding, inventory)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines through the playbook's display; Ansible's log gets them without colours."""
    text = "\n".join(lines)
    display.display(text, screen_only=True)
    display.display(Text.from_ansi(text).plain, log_only=True)


def show(
    draw: Callable[..., Iterable[RenderableType]], failure: str, inventory: Sequence[str]
) -> dict[str, object]:
    """Print what `draw` yields, and return the result of the action.

    `draw` is called with the console and `verbose`, which is True with -v. `failure` is the message with
    which the action fails; with "", it does not fail. `changed` of the result is always False. `inventory` is
    Ansible's variable `ansible_inventory_sources`.
    """
    terminal = open_terminal()
    console = console_for(terminal, inventory)
    if terminal is not None:
        os.close(terminal)
    print_lines(console.lines(*draw(console, verbose=display.verbosity > 0)))
    failed = {"failed": True, "msg": failure} if failure else {}
    return {"changed": False, "_ansible_verbose_override": True} | failed
