"""The problems of an inventory, and their wording."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.contract.progress import printable
from trainer.contract.rules import as_given

PARENT = "tf_cluster"

_NAMED_HOSTS = 5


@dataclass(frozen=True)
class InventoryProblem:
    """A problem, in words (`what`), and where to look for its cause.

    The cause is the definition of `variable`, or of a part of it (trainer_programs.mnist.entry), for `hosts`;
    without `variable`, it is the list of hosts. `everywhere` is True if the variable needs one value for the
    whole cluster. `cure` is the advice if no file is the cause, else "".
    """

    what: str
    variable: str = ""
    hosts: tuple[str, ...] = ()
    everywhere: bool = False
    cure: str = ""


@dataclass(frozen=True)
class Unreadable:
    """Replaces the value of a variable that Ansible cannot evaluate; `reason` is Ansible's."""

    reason: str


class InventoryError(ValueError):
    """The inventory cannot be used; `problems` has everything that is wrong with it."""

    def __init__(self, problems: Sequence[InventoryProblem]) -> None:
        self.problems = tuple(problems)


def value_in_words(value: object) -> str:
    """Return a value as messages describe it: "is 7", or "cannot be read (reason)"."""
    return f"cannot be read ({value.reason})" if isinstance(value, Unreadable) else f"is {as_given(value)}"


def named(hosts: Sequence[str]) -> str:
    """Return the names joined by ", "; of more than 5, their number and the first three.

    Example: "7 hosts (node1, node2, node3, ...)"
    """
    if len(hosts) <= _NAMED_HOSTS:
        return ", ".join(hosts)
    return f"{len(hosts)} hosts ({', '.join(hosts[: _NAMED_HOSTS - 2])}, ...)"


def short_path(file: Path) -> str:
    """Return the path relative to the current directory if the file lies below it, else unchanged."""
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


def describe(problems: Sequence[InventoryProblem], cure: Callable[[InventoryProblem], str]) -> str:
    """Return the message that lists every problem, each with the advice that `cure` returns for it.

    The problems are numbered from 1, in their order.
    """
    count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = [f"The inventory has {count}. Nothing was touched."]
    for number, problem in enumerate(problems, start=1):
        lines += [f"{number}. {printable(problem.what)}", f"   {printable(cure(problem))}"]
    return "\n".join(lines)
