"""Whether a host's clock goes with the controller's, which signs the certificates of the hosts."""

from __future__ import annotations

from .check import Finding, failed, ok, warning

# Certificates are valid from an hour before they are signed (psfleet/carry/certificates.py).
ALLOWED_SECONDS = 3600.0
# Records of tasks on several hosts are put in order by their clocks.
UNNOTICED_SECONDS = 2.0
REMEDY = "let the hosts and the controller take the time from NTP: sudo timedatectl set-ntp true"


def clock_offset(asked: float, began: float, ended: float, answered: float) -> tuple[float, float]:
    """Return how far a host's clock is ahead, and how far that may be wrong, in seconds.

    The host read its own clock when it `began` and `ended` to look; the controller read its own when it
    `asked` and when it was `answered`. All are Unix times. The way there and the way back may differ, by all
    that they took.
    """
    on_the_way = max((answered - asked) - (ended - began), 0.0)
    return ((began - asked) + (ended - answered)) / 2, on_the_way / 2


def clock_check(ahead_seconds: float, uncertainty_seconds: float) -> Finding:
    """Return what is said of the clock, for what `clock_offset` gave."""
    least = abs(ahead_seconds) - uncertainty_seconds
    side = "ahead of" if ahead_seconds > 0 else "behind"
    given = f"(give or take {_seconds(uncertainty_seconds)})"
    found = f"{_seconds(abs(ahead_seconds))} {side} the controller's clock {given}"
    if least > ALLOWED_SECONDS:
        return failed(
            f"{found}: SSH certificates are signed for clocks that are at most an hour apart",
            REMEDY,
        )
    if least > UNNOTICED_SECONDS:
        return warning(f"{found}: records of its tasks are dated wrongly", REMEDY)
    if abs(ahead_seconds) <= uncertainty_seconds:
        return ok(f"as the controller's clock {given}")
    return ok(found)


def _seconds(seconds: float) -> str:
    whole = round(seconds)
    if whole < 10:
        return f"{seconds:.1f} s"
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"
