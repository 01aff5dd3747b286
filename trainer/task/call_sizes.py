"""How many steps a worker takes in one call into TensorFlow."""

_LONGEST_SECONDS = 0.05


class CallSizes:
    """Learns how many steps fit into 50 ms: so long the worker hears nobody, and nobody hears it."""

    def __init__(self, most: int) -> None:
        """Take how many it may be at most."""
        self._most, self._size = most, 1

    def within(self, steps: float) -> int:
        """How many to take where something is due after so many."""
        return int(max(1, min(self._size, steps)))

    def took(self, seconds: float, steps: int) -> None:
        """Learn how long a call of so many steps has taken. Sizes grow by twice at most, and fall at once."""
        fitting = int(_LONGEST_SECONDS * steps / max(seconds, 1e-6))
        self._size = max(1, min(fitting, 2 * self._size, self._most))
