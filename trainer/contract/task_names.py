"""The names of a run's tasks, such as "worker0": their parts, and which of them leads."""

from collections.abc import Container

# It initialises, saves and evaluates the trainer's own models.
CHIEF = "worker0"
# A program's coordinator, where it has one.
COORDINATOR = "chief0"
LEADS = (COORDINATOR, CHIEF)


def lead_of(names: Container[str]) -> str:
    """Return the task whose end is the run's: a program's coordinator where there is one, else worker 0."""
    return COORDINATOR if COORDINATOR in names else CHIEF


def split_name(name: str) -> tuple[str, int]:
    """Return the job and the index, ("worker", 0) of "worker0"; the index is 0 where the name has none."""
    # A host may have made the name up: Python refuses to read thousands of digits.
    length = max(len(name.rstrip("0123456789")), len(name) - 9)
    return name[:length], int(name[length:] or 0)
