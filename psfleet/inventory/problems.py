"""What is wrong with an inventory, in words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.contract.progress import printable
from trainer.contract.rules import as_given

PARENT = "tf_cluster"

_NAMED_HOSTS = 5


@dataclass(frozen=True)
class InventoryProblem:
    """What is wrong, and what to look for to mend it.

    `variable` and `hosts` say whose definition is at fault, or what in it (trainer_programs.mnist.entry);
    without `variable` the list of hosts is.
    `everywhere`: one value for the whole cluster is the cure. `cure`: what to do where no file is at fault.
    """

    what: str
    variable: str = ""
    hosts: tuple[str, ...] = ()
    everywhere: bool = False
    cure: str = ""


@dataclass(frozen=True)
class Unreadable:
    """Stands for a variable's value that could not be had, with Ansible's reason."""

    reason: str


class InventoryError(ValueError):
    """An inventory that cannot be used; `problems` holds everything that is wrong with it."""

    def __init__(self, problems: Sequence[InventoryProblem]) -> None:
        self.problems = tuple(problems)


def found_of(value: object) -> str:
    """Return what was found of a value, in words."""
    return f"cannot be read ({value.reason})" if isinstance(value, Unreadable) else f"is {as_given(value)}"


def named(hosts: Sequence[str]) -> str:
    """Return the hosts in words, only the first by name where there are many."""
    if len(hosts) <= _NAMED_HOSTS:
        return ", ".join(hosts)
    return f"{len(hosts)} hosts ({', '.join(hosts[: _NAMED_HOSTS - 2])}, ...)"


def shown(file: Path) -> str:
    """Return the path as people would type it in the directory they are in."""
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


def describe(problems: Sequence[InventoryProblem], cure: Callable[[InventoryProblem], str]) -> str:
    """Return the message that lists every problem with its cure."""
    count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = [f"The inventory has {count}. Nothing was touched."]
    for number, problem in enumerate(problems, start=1):
        lines += [f"{number}. {printable(problem.what)}", f"   {printable(cure(problem))}"]
    return "\n".join(lines)
