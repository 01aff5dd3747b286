"""The host check `clock`: whether the host's clock agrees with the controller's, which signs certificates."""

from __future__ import annotations

from ..host.check import Finding, failed, ok, warning

# Certificates are valid from an hour before they are signed (psfleet/carry/certificates.py).
ALLOWED_SECONDS = 3600.0
# Records of tasks on several hosts are sorted by the hosts' clocks, so people notice a larger difference.
UNNOTICED_SECONDS = 2.0
REMEDY = "let the hosts and the controller take the time from NTP: sudo timedatectl set-ntp true"


def clock_offset(sent: float, began: float, ended: float, received: float) -> tuple[float, float]:
    """Return (seconds by which the host's clock is ahead, uncertainty of this in seconds).

    The controller read its own clock when it `sent` the request and when it `received` the answer; the host
    read its own when the module `began` and `ended`; all are Unix times. If the host's clock is behind, the
    seconds are negative. The uncertainty is half of the time that the request and the answer were on the way.
    """
    on_the_way = max((received - sent) - (ended - began), 0.0)
    return ((began - sent) + (ended - received)) / 2, on_the_way / 2


def clock_finding(ahead_seconds: float, uncertainty_seconds: float) -> Finding:
    """Return the finding of the check `clock`; the arguments are the result of `clock_offset`.

    What counts is |offset| - uncertainty: failed above ALLOWED_SECONDS (an hour), a warning above
    UNNOTICED_SECONDS (2 s), else ok.
    """
    least = abs(ahead_seconds) - uncertainty_seconds
    side = "ahead of" if ahead_seconds > 0 else "behind"
    uncertainty = f"(give or take {_seconds(uncertainty_seconds)})"
    found = f"{_seconds(abs(ahead_seconds))} {side} the controller's clock {uncertainty}"
    if least > ALLOWED_SECONDS:
        return failed(
            f"{found}: SSH certificates are signed for clocks that are at most an hour apart",
            REMEDY,
        )
    if least > UNNOTICED_SECONDS:
        return warning(f"{found}: records of its tasks are dated wrongly", REMEDY)
    if abs(ahead_seconds) <= uncertainty_seconds:
        return ok(f"as the controller's clock {uncertainty}")
    return ok(found)


def _seconds(seconds: float) -> str:
    whole = round(seconds)
    if whole < 10:
        return f"{seconds:.1f} s"
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"
