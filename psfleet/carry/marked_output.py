"""Tells what a command printed from what the login shell printed around it: banners, greetings, farewells."""

import secrets

_HALF = 16


def marking() -> tuple[str, str]:
    """Return a new marker, and the shell command that prints it as a line.

    The command, which a shell may print, too, does not contain the marker.
    """
    first, second = secrets.token_hex(_HALF), secrets.token_hex(_HALF)
    return first + second, f"printf '%s%s\n' {first} {second}"


def marked(command: str) -> tuple[str, str]:
    """Return a new marker, and a shell command that prints it before and after what `command` prints."""
    marker, mark = marking()
    return marker, f"{mark}; {command}; {mark}"


def between(marker: str, printed: str) -> str:
    """Return what was printed between the two markers; "" if there is none."""
    return printed.partition(marker)[2].partition(marker)[0].removeprefix("\r").removeprefix("\n")
