"""The number of steps that a worker takes in one call into TensorFlow."""

_LONGEST_SECONDS, _LONGEST_SECONDS_AHEAD = 0.05, 0.5


class CallSizes:
    """Adapts the number of steps in a call so that a call takes 50 ms.

    During a call the worker cannot react to anything, nor report anything. With `pull_ahead` a call may take
    half a second: to overlap their transfers, a call needs several steps even over a slow link.
    """

    def __init__(self, most: int, *, pull_ahead: bool = False) -> None:
        """Take the largest number of steps in a call."""
        self._most, self._size = most, 1
        self._seconds = _LONGEST_SECONDS_AHEAD if pull_ahead else _LONGEST_SECONDS

    def within(self, steps: float) -> int:
        """Return the number of steps for the next call, if something is due after `steps` steps."""
        return int(max(1, min(self._size, steps)))

    def adapt(self, seconds: float, steps: int) -> None:
        """Adapt to a call of so many steps that took so long. The size at most doubles, and falls at once."""
        fitting = int(self._seconds * steps / max(seconds, 1e-6))
        self._size = max(1, min(fitting, 2 * self._size, self._most))
