"""How many steps a worker takes in one call into TensorFlow."""

_LONGEST_SECONDS, _LONGEST_SECONDS_AHEAD = 0.05, 0.5


class CallSizes:
    """Learns how many steps fit into 50 ms: so long the worker hears nobody, and nobody hears it.

    Into half a second where steps pull ahead: over a slow link, too, several are needed to overlap.
    """

    def __init__(self, most: int, *, pull_ahead: bool = False) -> None:
        """Take how many it may be at most."""
        self._most, self._size = most, 1
        self._seconds = _LONGEST_SECONDS_AHEAD if pull_ahead else _LONGEST_SECONDS

    def within(self, steps: float) -> int:
        """How many to take where something is due after so many."""
        return int(max(1, min(self._size, steps)))

    def took(self, seconds: float, steps: int) -> None:
        """Learn how long a call of so many steps has taken. Sizes grow by twice at most, and fall at once."""
        fitting = int(self._seconds * steps / max(seconds, 1e-6))
        self._size = max(1, min(fitting, 2 * self._size, self._most))
