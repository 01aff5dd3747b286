"""Wording for people: makes texts from elsewhere safe, and writes times and rates in few characters."""

from trainer.contract.progress import printable
from trainer.host.wording import cut


def in_a_line(text: object, most: int = 1000) -> str:
    """Return `text` in one line of at most `most` characters; a longer text is cut.

    Line breaks and other white space become one blank. Characters that steer a terminal are escaped.
    """
    return cut(" ".join(printable(str(text)).split()), most)


def rate_of(per_second: float, unit: str = "") -> str:
    """Return a rate such as "140/s" or, with a unit, "4.2 steps/s"; a rate below 0.1/s is per minute.

    Example: rate_of(0.05) -> "3/min"
    """
    number, per = (per_second * 60, "min") if 0 < per_second < 0.1 else (per_second, "s")
    text = f"{number:.2g}" if number < 9.95 else f"{number:.0f}"
    return f"{text} {unit}/{per}" if unit else f"{text}/{per}"


def clock(seconds: float) -> str:
    """Return a time in seconds as "0:05", "12:40" or "1:02:05", rounded to full seconds."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def duration(seconds: float) -> str:
    """Return a duration in seconds as "45s", "12m", "3h05m" or "2d04h", rounded down.

    A negative one is "0s".
    """
    whole = max(int(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days}d{hours % 24:02}h"
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    return f"{minutes}m" if minutes else f"{whole}s"
