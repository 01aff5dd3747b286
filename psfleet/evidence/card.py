"""A check of the verdict: a function, and a card that says in words what its answers mean."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from typing import Concatenate, ParamSpec

from psfleet.evidence.answer import Answer, Findings, Good, listed

Parameters = ParamSpec("Parameters")

ALWAYS = "always"
# Advice that several checks give.
TRAIN_ANEW = "Train again under a new run id: ansible-playbook train.yml -e run_id=NAME."
READ_THE_LOGS = "Read the end of the log of each task named here: logs/ in the run's folder, and below."
DEPLOY = (
    "Deploy to all hosts again, so that each has the same plan and release: ansible-playbook deploy.yml. "
    "Then train under a new run id."
)
LOOK_AT_THE_LOSS = (
    "Look at the loss: if it still falls, raise trainer_steps; if it jumps or rises, lower "
    "trainer_learning_rate. Both are set in inventory/<name>/group_vars/tf_cluster.yml."
)


class Group(Enum):
    """What a check is about.

    If checks of several groups failed, the headline of the verdict names the gravest failure.
    """

    RECORDS = "whether these are the run's records, and it ended well"
    SHARING = "whether the workers trained one model together"
    GRADIENTS = "whether the workers pushed the gradients of their loss"
    CONVERGENCE = "whether the model learned"
    EVALUATION = "whether somebody else finds the same model"
    FILES = "whether the files are those that were collected"
    LOGS = "whether the logs match"


@dataclass(frozen=True)
class Card:
    """The texts that people read about a check.

    `holds`, `fails` and `unknown` say when its answer is true, false or unknown. `advice` says what to do if
    the answer is not true. `models` and `programs` say for which runs the check is made: ALWAYS, a condition
    in words, or "" for never. docs/verdict.md and the report are made from cards.
    """

    group: Group
    holds: str
    fails: str
    unknown: str
    advice: str
    models: str = ALWAYS
    programs: str = ""


# {name of a check: its card}
CARDS: dict[str, Card] = {}


def check(
    card: Card,
) -> Callable[[Callable[Concatenate[Findings, Parameters], Good]], Callable[Parameters, Answer]]:
    """Return a decorator that turns a function that collects findings into a check of the same name.

    The function takes `Findings`, adds to them, and returns `Good`: (text, figures). The check takes the
    function's other arguments and returns an Answer with the figures. The Answer is False with all
    contradictions as its text; else None with all missing evidence; else True with the function's text.
    `card` is added to CARDS.
    """

    def with_card(
        question: Callable[Concatenate[Findings, Parameters], Good],
    ) -> Callable[Parameters, Answer]:
        @wraps(question)
        def answer(*arguments: Parameters.args, **by_name: Parameters.kwargs) -> Answer:
            findings = Findings()
            good, evidence = question(findings, *arguments, **by_name)
            ok = False if findings.wrong else None if findings.lacking else True
            detail = listed([*findings.wrong, *findings.lacking]) or good
            return Answer(question.__name__, ok, detail, evidence)

        CARDS[question.__name__] = card
        return answer

    return with_card


def checks_of(group: Group) -> set[str]:
    """Return the names of all checks whose card has this group."""
    return {name for name, card in CARDS.items() if card.group is group}
