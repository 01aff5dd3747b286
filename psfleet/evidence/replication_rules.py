"""What each replication leaves in the records.

Other modules of the verdict do not distinguish replications.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from trainer.contract.run_tasks import has_one_client
from trainer.contract.settings import TrainingSettings

# The settings that `rules_of` reads.
SETTINGS = ("replication", "replicas_to_aggregate", "existing_servers")


@dataclass(frozen=True)
class ReplicationRules:
    """How the workers of a run train, and so what their records must show.

    `replication` is "async", "sync", "in_graph" or "local". `workers` compute gradients; `gradients_per_step`
    gradients make one global step. With `existing_servers`, each client connects to a server of its own,
    which leaves records, too.
    """

    replication: str = "async"
    workers: int = 1
    gradients_per_step: int = 1
    existing_servers: bool = False

    def __str__(self) -> str:
        """Return the replication in words, such as "async" or "sync, 3 of 4 gradients to a step".

        With existing servers, ", on existing servers" follows.
        """
        step = f", {self.gradients_per_step} of {self.workers} gradients to a step"
        servers = ", on existing servers" if self.existing_servers else ""
        return f"{self.replication}{step if self.replication == 'sync' else ''}{servers}"

    @property
    def once_per_step(self) -> bool:
        """Whether a global step takes at most one gradient of each worker: True for "sync" and "in_graph"."""
        return self.replication in {"sync", "in_graph"}

    @property
    def drops_late_gradients(self) -> bool:
        """Whether a gradient may not count, because the global step was made without it: True for "sync"."""
        return self.replication == "sync"

    @property
    def backups(self) -> int:
        """The number of workers that may contribute little: the workers minus the gradients of a step.

        It is 0 unless the replication is "sync". At least two workers must always contribute, because one
        worker alone shares with no other: so with one gradient a step, it is the number of workers minus 2.
        """
        return max(self.workers - max(self.gradients_per_step, 2), 0) if self.replication == "sync" else 0

    @property
    def one_client(self) -> bool:
        """Whether only worker 0 has sessions, to the ps and to the other workers: in-graph and local."""
        return has_one_client(self.replication)

    @property
    def shared(self) -> bool:
        """Whether several workers share the model: `workers` is more than 1."""
        return self.workers > 1

    @property
    def alone(self) -> str:
        """Why nothing is shared, in words; use it only if `shared` is False."""
        if self.replication == "local":
            return "the run is local: one process holds the model, so nothing is shared"
        return "there is one worker, so nothing is shared"

    def together(self, ps: str) -> str:
        """Return in words what a proven run with these rules did; `ps` is a text such as "2 ps".

        Example: "3 workers trained one model together through 2 ps".
        """
        if self.replication == "local":
            return "one process trained the model by itself, without ps"
        if not self.shared:
            return f"1 worker trained one model through {ps}"
        if self.replication == "in_graph":
            return f"one client trained one model on {self.workers} workers together through {ps}"
        step = f", {self.gradients_per_step} gradients to a step," if self.replication == "sync" else ""
        return f"{self.workers} workers trained one model together{step} through {ps}"


def rules_of(settings: Mapping[str, object], workers: int) -> ReplicationRules:
    """Return the rules of a run with these training settings, whose plan has `workers` workers.

    A missing setting has its default: the run may be older than the setting. Raises ValueError naming an
    invalid value.
    """
    given = {name: settings[name] for name in SETTINGS if name in settings}
    training = TrainingSettings.from_mapping(given)
    if training.replication == "local":
        workers = 1
    replicas = training.replicas_to_aggregate
    if replicas is not None and replicas > workers:
        raise ValueError(f"replicas_to_aggregate is {replicas!r}; expected an integer from 1 to {workers}")
    per_step = training.gradients_in_a_step(workers)
    return ReplicationRules(training.replication, workers, per_step, training.existing_servers)
