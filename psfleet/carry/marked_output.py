"""Separates what a command printed from what the login shell printed around it, such as banners."""

import secrets

_HALF = 16


def new_marker() -> tuple[str, str]:
    """Return (new marker, shell command that prints the marker in a line).

    A shell may print the command, too, so the command does not contain the marker in one piece.
    """
    first, second = secrets.token_hex(_HALF), secrets.token_hex(_HALF)
    return first + second, f"printf '%s%s\n' {first} {second}"


def mark_output(command: str) -> tuple[str, str]:
    """Return (new marker, shell command that prints the marker before and after the output of `command`)."""
    marker, mark = new_marker()
    return marker, f"{mark}; {command}; {mark}"


def output_between(marker: str, printed: str) -> str:
    """Return what was printed between the two markers, without the end of the first marker's line.

    Return "" if there is no marker; if there is only one, return everything after it.
    """
    return printed.partition(marker)[2].partition(marker)[0].removeprefix("\r").removeprefix("\n")
