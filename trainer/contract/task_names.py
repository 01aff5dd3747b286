"""The names of a run's tasks, such as "worker0": their parts, and the name of the lead."""

from collections.abc import Container
from typing import Final

# The chief of built-in models, which initialises, saves and evaluates.
CHIEF = "worker0"
# A program's chief, if the plan has one.
COORDINATOR = "chief0"
LEADS = (COORDINATOR, CHIEF)
# The evaluator takes no part in the training, but writes records as tasks do. Of a built-in model, it is no
# task of the run: it evaluates the final model, on the chief's host, after the run's end. Of a program, it is
# the task of this name, if the plan has one.
EVALUATOR: Final = "evaluator"
EVALUATOR_NAME = f"{EVALUATOR}0"


def lead_of(names: Container[str]) -> str:
    """Return the name of the lead: "chief0" if `names` has it, else "worker0"."""
    return COORDINATOR if COORDINATOR in names else CHIEF


def split_name(name: str) -> tuple[str, int]:
    """Return (job, index) of a task's name: ("worker", 12) for "worker12", ("worker", 0) for "worker".

    At most the last nine digits make the index.
    """
    # A host may send any name, and Python refuses to convert thousands of digits.
    length = max(len(name.rstrip("0123456789")), len(name) - 9)
    return name[:length], int(name[length:] or 0)
