"""The number of steps that a worker takes in one call into TensorFlow."""

_LONGEST_SECONDS, _LONGEST_SECONDS_AHEAD = 0.05, 0.5


class CallSizes:
    """Adapts the number of steps in a call so that a call takes 50 ms.

    During a call the worker cannot react to anything, nor report anything. With `pull_ahead` a call may take
    half a second: to overlap their transfers, a call needs several steps even over a slow link. A call that
    can has at least the steps of a pull (`pull_every`), however long they take.
    """

    def __init__(self, most: int, least: int = 1, *, pull_ahead: bool = False) -> None:
        """Take the largest number of steps in a call, and the number of steps of a pull."""
        self._most, self._least, self._size = most, least, 1
        self._seconds = _LONGEST_SECONDS_AHEAD if pull_ahead else _LONGEST_SECONDS

    def within(self, steps: float) -> int:
        """Return the number of steps for the next call, if something is due after `steps` steps."""
        return int(max(1, min(self._size, steps)))

    def adapt(self, seconds: float, steps: int) -> None:
        """Adapt to a call of so many steps that took so long. The size at most doubles, and falls at once."""
        fitting = int(self._seconds * steps / max(seconds, 1e-6))
        self._size = max(1, min(self._least, 2 * steps), min(fitting, 2 * self._size, self._most))
