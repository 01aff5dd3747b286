"""The live display of a run: real bytes on a real pty, read as a terminal would show them."""

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from psfleet.watch.console import encoding_for
from tests.psfleet.watch.small_terminal import Terminal

PROGRAM = str(Path(__file__).with_name("drawn_screen.py"))
PAUSE = "\x1b[0m"
WATCHED = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}


class Drawn:
    """`drawn_screen.py` on a pty of its own, and the terminal that shows it."""

    def __init__(self, *steps: str, columns: int = 80, rows: int = 24, **environment: str) -> None:
        """Begin; the terminal already has two rows."""
        self.terminal = Terminal(columns, rows)
        self.terminal.feed("$ ansible-playbook train.yml\r\nTASK [watch] ****\r\n")
        self.bytes = ""
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self._pid, self._pty = pty.fork()
        if not self._pid:
            os.execve(sys.executable, [sys.executable, PROGRAM, *steps], kept | WATCHED | environment)
        self._set_size(columns, rows)
        quiet = termios.tcgetattr(self._pty)
        quiet[3] &= ~termios.ECHO
        termios.tcsetattr(self._pty, termios.TCSANOW, quiet)

    def until_pause(self) -> "Drawn":
        """Read until the program waits."""
        while not self.bytes.endswith(PAUSE):
            self._read()
        return self

    def to_end(self) -> list[str]:
        """Read to the end; the terminal's rows."""
        while self._read():
            pass
        os.close(self._pty)
        assert os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1]) == 0
        return self.terminal.text

    def type(self, text: str) -> "Drawn":
        """Type at the keyboard."""
        os.write(self._pty, text.encode())
        return self

    def resize(self, columns: int) -> "Drawn":
        """Make the terminal narrower or wider."""
        self._set_size(columns, self.terminal.rows)
        self.terminal.resize(columns)
        return self

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._pty, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> bool:
        data = b""
        try:
            data = os.read(self._pty, 65536)
            while data and data[-1] >= 0x80:  # perhaps in the midst of a character
                data += os.read(self._pty, 1)
        except OSError:  # the program has gone
            if not data:
                return False
        text = data.decode()
        self.bytes += text
        self.terminal.feed(text)
        return bool(text)


def bars(rows: list[str]) -> list[str]:
    return [row for row in rows if "step " in row and "%" in row]


def test_the_block_is_rewritten_in_place() -> None:
    rows = Drawn("view=100", "view=200", "view=300").to_end()
    assert rows[:2] == ["$ ansible-playbook train.yml", "TASK [watch] ****"]
    assert len(bars(rows)) == 1
    assert rows[2].endswith("30%   step 300/1000")
    assert len(rows) == 5


@pytest.mark.parametrize(("columns", "rows"), [(1, 24), (2, 2), (19, 1)])
def test_a_tiny_terminal_does_not_end_the_watching(columns: int, rows: int) -> None:
    # The note must be made printable: this terminal knows no such sequence.
    drawn = Drawn("view=100", "note=worker1 is slow\x1b[2J", "view=200", columns=columns, rows=rows)
    drawn.to_end()
    assert "slow" in drawn.bytes


@pytest.mark.parametrize("rows", [3, 6, 10])
def test_scrolling_in_a_low_terminal_leaves_no_remains_of_the_block(rows: int) -> None:
    notes = [f"note=worker1 is slow {number}" for number in range(9)]
    shown = Drawn("view=100", *notes, "view=200", "view=300", rows=rows).to_end()
    assert len(bars(shown)) == 1
    assert [row for row in shown if "slow" in row] == [f"  ! 1:05  {note[5:]}" for note in notes]


def test_a_note_stays_above_the_block_and_is_wrapped_by_words() -> None:
    rows = Drawn("view=100", f"note={'word ' * 10}end", "view=200", columns=40).to_end()
    assert rows[2:5] == [
        "  ! 1:05  word word word word word word",
        "          word word word word end",
        rows[4],
    ]
    assert len(bars(rows)) == 1
    assert "step 200/1000" in bars(rows)[0]


def test_output_of_ansible_stays_and_the_block_is_redrawn_below_it() -> None:
    rows = Drawn("view=100", "other=[WARNING]: something of Ansible's", "view=200", "view=300").to_end()
    assert rows[2] == "[WARNING]: something of Ansible's"
    assert len(bars(rows)) == 1
    assert rows[3].endswith("step 300/1000")


@pytest.mark.parametrize("columns", [79, 40, 20, 130])
def test_a_terminal_that_changes_its_width_keeps_one_block(columns: int) -> None:
    drawn = Drawn("view=100", "note=a note", "view=150", "wait", "view=200", "view=300", columns=80)
    rows = drawn.until_pause().resize(columns).type("\n").to_end()
    assert len([row for row in rows if "%" in row and "worker" not in row]) == 1
    assert not [row for row in rows if "15%" in row]


def test_a_row_wider_than_the_terminal_is_cut() -> None:
    # The terminal became narrower after its size was read.
    drawn = Drawn("view=100", "view=200", columns=80)
    drawn.terminal = Terminal(60, 24)
    rows = drawn.to_end()
    assert len(rows) == 4
    assert not [row for row in rows if "10%" in row]


def test_ctrl_c_restores_the_terminal_and_names_the_command_to_watch_again() -> None:
    drawn = Drawn("view=100", "view=200", "wait", "view=300")
    rows = drawn.until_pause().type("\x03").to_end()
    assert len(bars(rows)) == 1
    assert rows[-2:] == ["  Run night goes on. Watch it again:", "    ansible-playbook train.yml"]
    drawn.terminal.feed("$ ")
    assert drawn.terminal.text[-1] == "$"


def test_no_color_disables_colours() -> None:
    coloured = Drawn("view=100", "note=slow")
    coloured.to_end()
    plain = Drawn("view=100", "note=slow", NO_COLOR="1")
    plain.to_end()
    assert ("\x1b[33m" in coloured.bytes, "\x1b[33m" in plain.bytes) == (True, False)


def test_a_terminal_that_cannot_move_its_cursor_gets_lines() -> None:
    drawn = Drawn("view=100", "note=slow", "view=200", TERM="dumb", NO_COLOR="1")
    rows = drawn.to_end()
    assert "\x1b" not in drawn.bytes
    assert [row.split("step ")[1].split("/")[0] for row in bars(rows)] == ["100", "200"]


def test_a_log_gets_whole_lines_without_control_characters(tmp_path: Path) -> None:
    log = tmp_path / "ansible.log"
    done = subprocess.run(
        [sys.executable, PROGRAM, "view=100", "note=worker1 is slow", "view=200"],
        env=os.environ | WATCHED | {"ANSIBLE_LOG_PATH": str(log)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert [line.isprintable() for line in lines] == [True] * len(lines)
    assert lines[:2] == [line for line in lines if "step 100/" in line or "slow" in line]
    assert lines[0].startswith("0:00  10%  step 100/1000  loss 0.2500")
    assert lines[1] == "  ! 1:05  worker1 is slow"

    Drawn("view=100", "note=worker1 is slow", ANSIBLE_LOG_PATH=str(log)).to_end()
    assert all(line.isprintable() for line in log.read_text().splitlines())
    assert log.read_text().count("worker1 is slow") == 2
    assert log.read_text().count("step 100/1000") == 2


@pytest.mark.parametrize(
    ("environment", "writes", "encoding"),
    [
        ({"LANG": "en_US.UTF-8"}, "utf-8", "utf-8"),
        ({"LANG": "de_DE.utf8", "TERM": "xterm"}, "utf-8", "utf-8"),
        ({"LC_ALL": "C.UTF-8", "LANG": "C"}, "utf-8", "utf-8"),
        ({"LANG": "en_US.UTF-8"}, "latin-1", "ascii"),
        ({"LANG": "en_US.UTF-8", "TERM": "linux"}, "utf-8", "ascii"),
        ({"LANG": "de_DE.ISO-8859-1"}, "utf-8", "ascii"),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "utf-8", "ascii"),  # as Python makes it of LANG=C
        ({}, "utf-8", "ascii"),
    ],
)
def test_only_a_utf_8_terminal_gets_non_ascii_characters(
    environment: dict[str, str], writes: str, encoding: str
) -> None:
    assert encoding_for(environment, io.TextIOWrapper(io.BytesIO(), writes)) == encoding
