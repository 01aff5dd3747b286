"""The number of steps that a worker takes in one call into TensorFlow."""

_LONGEST_SECONDS, _LONGEST_SECONDS_AHEAD = 0.05, 0.5


class CallSizes:
    """Chooses the number of steps in the next call into TensorFlow, so that a call takes about 50 ms.

    During a call the worker can neither react nor report. With `pull_ahead` a call may take 0.5 s, because a
    call needs several steps to overlap their transfers, even over a slow link. With `pull_every`, a call
    grows at least to the steps of one pull, however long they take.
    """

    def __init__(self, most: int, least: int = 1, *, pull_ahead: bool = False) -> None:
        """Begin with one step in a call.

        `most` is the largest number of steps in a call; `least` is the number of steps of one pull.
        """
        self._most, self._least, self._size = most, least, 1
        self._seconds = _LONGEST_SECONDS_AHEAD if pull_ahead else _LONGEST_SECONDS

    def next_size(self, steps_until_due: float) -> int:
        """Return the number of steps for the next call: at most `steps_until_due`, but at least 1.

        `steps_until_due` is how many steps remain until something is due, such as a save; it may be infinite.
        """
        return int(max(1, min(self._size, steps_until_due)))

    def adapt(self, seconds: float, steps: int) -> None:
        """Adapt the size of the next calls, given that a call of `steps` steps took `seconds`.

        The size rises to twice its value at most, and may fall to any value at once.
        """
        fitting = int(self._seconds * steps / max(seconds, 1e-6))
        self._size = max(1, min(self._least, 2 * steps), min(fitting, 2 * self._size, self._most))
