"""When a worker takes its steps, by the steps of others, so that runs are alike on any machine."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Pace:
    """The pace of a worker, and what it does to itself.

    Attributes:
        waits: global step -> the steps that the others must have taken before it goes beyond that step.
        others_per_step: the steps that the others take to each of its own.
        kills_itself_at: its own step before which it kills itself; 0 for never.
        stops_itself_at: its own step before which it stands still until SIGCONT; 0 for never.

    """

    waits: Mapping[int, int] = field(default_factory=dict)
    others_per_step: int = 0
    kills_itself_at: int = 0
    stops_itself_at: int = 0

    @classmethod
    def from_json(cls, text: str) -> "Pace":
        """Read what `program` has written."""
        fields = json.loads(text)
        return cls(**fields | {"waits": {int(step): others for step, others in fields["waits"].items()}})

    @property
    def program(self) -> Sequence[str]:
        """The trainer with this pace, as `Cluster.start` takes a program."""
        return [str(Path(__file__).with_name("paced_trainer.py")), json.dumps(asdict(self))]

    def allows(self, own: int, others: int) -> bool:
        """Whether the worker may take a step after so many of its own and of others."""
        awaited = [steps for beyond, steps in self.waits.items() if own + others >= beyond]
        return others >= max([*awaited, self.others_per_step * own])


def stands_still(pid: int) -> bool:
    """Whether a process has stopped itself, and SIGCONT will not come too early."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def waiting_at(global_step: int) -> str:
    """What such a worker prints when it begins to wait for others."""
    return f"Waiting for others at global step {global_step}"
