"""Records of runs that were never run: any order of steps, kills, broken sessions and restores, by chance.

Nothing of what these workers tell is false. So whatever chance makes of it, no check may contradict them.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

from psfleet.evidence.recorded_run import Run
from psfleet.evidence.replication_rules import ReplicationRules
from psfleet.evidence.task_records import TaskRecords
from trainer.contract.records import Record
from trainer.contract.run_tasks import RunTask

Fields = dict[str, object]


@dataclass
class Worker:
    """One worker: the records of all its lives, its open window, and the step that it is in."""

    index: int
    random: random.Random
    records: list[Record] = field(default_factory=list)
    pid: int = 0
    local_step: int = 0
    open: list[tuple[int, int]] = field(default_factory=list)
    before: int | None = None
    added: bool = False
    settings: Fields = field(default_factory=dict)

    def write(self, event: str, **fields: object) -> None:
        """Add a record."""
        self.records.append(
            Record(event, "run", "worker", self.index, "host", self.pid, "", "", 0.0, 0.0, fields)
        )

    def begin(self, global_step: int) -> None:
        """A new process, or a new session of the same one."""
        self.before, self.added = None, False
        self.write("peers_ready", global_step=global_step)

    def start(self, global_step: int) -> None:
        """A new process: what the one before it had not written is lost."""
        self.pid += 1
        self.local_step, self.open = 0, []
        self.write("started", nonce=1000 * self.index + self.pid, settings=self.settings)
        self.begin(global_step)

    def flush(self) -> None:
        """Write the window, if it has steps."""
        if self.open:
            steps = len(self.open)
            self.write(
                "step",
                local_step=self.local_step,
                steps=steps,
                global_step_before=self.open[0][0],
                global_step_after=self.open[-1][1],
                examples=steps,
            )
        self.open = []

    def count(self, before: int, after: int) -> None:
        """Count a step, and write the window now and then."""
        self.local_step += 1
        self.open.append((before, after))
        if self.random.random() < 0.2:
            self.flush()

    def break_session(self, global_step: int) -> None:
        """Lose the connection, and whether a step was made."""
        self.flush()
        self.write("recovering", reason="lost")
        self.begin(global_step)

    def finish(self, **fields: object) -> None:
        """End well."""
        self.flush()
        self.write("finished", reason="last step", local_step=self.local_step, **fields)


class Simulation:
    """Workers that move one global step asynchronously.

    `stranger`: the part of all turns in which somebody moves it who leaves no records.
    """

    def __init__(self, seed: int, workers: int, *, faults: bool, stranger: float = 0.0) -> None:
        """Let some workers be five times as fast as others; nothing happens yet."""
        self.random = random.Random(seed)
        self.workers = [Worker(index, self.random) for index in range(workers)]
        self.faults, self.stranger = faults, stranger
        self.global_step = self.checkpoint = 0
        self.speeds = [self.random.choice([1, 1, 1, 5]) for _ in range(workers)]

    def run(self, turns: int = 3000) -> Run:
        """Let chance choose who does what next."""
        for worker in self.workers:
            worker.start(0)
            if worker.index == 0:
                worker.write("initialised", global_step=0)
        for _ in range(turns):
            if self.random.random() < self.stranger:
                self.global_step += 1
            self._act(self.random.choices(self.workers, self.speeds)[0])
            if self.faults and self.random.random() < 0.004:
                self._fail()
        for worker in self.workers:
            if worker.added:
                self._act(worker)
            worker.finish(global_step=self.global_step)
        return run_of(self.workers, ReplicationRules("async", len(self.workers)))

    def _act(self, worker: Worker) -> None:
        """Read the global step, add to it, or read it again: others may act between any two of these."""
        if worker.before is None:
            worker.before = self.global_step
        elif not worker.added:
            self.global_step += 1
            worker.added = True
        else:
            worker.count(worker.before, self.global_step)
            worker.before, worker.added = None, False

    def _fail(self) -> None:
        worker = self.random.choice(self.workers)
        self.random.choice([self._kill, self._break, self._lose_the_ps, self._save])(worker)

    def _kill(self, worker: Worker) -> None:
        """With the chief's next process the model is set back, and the others do not notice."""
        if worker.index == 0:
            self.global_step = self.checkpoint
        worker.start(self.global_step)
        if worker.index == 0:
            worker.write("restored", global_step=self.checkpoint, checkpoint="x")

    def _break(self, worker: Worker) -> None:
        if worker.index:
            worker.break_session(self.global_step)

    def _lose_the_ps(self, killed: Worker) -> None:
        self.global_step = self.checkpoint
        for worker in self.workers:
            if worker is killed:
                worker.start(self.global_step)
            else:
                worker.break_session(self.global_step)
        self.workers[0].write("restored", global_step=self.checkpoint, checkpoint="x")

    def _save(self, _: Worker) -> None:
        self.checkpoint = self.global_step


def synchronous_run(seed: int, workers: int, replicas: int, rounds: int = 300) -> Run:
    """Each round takes `replicas` gradients; of the other workers some offer one too late."""
    chance = random.Random(seed)
    every = [Worker(index, chance) for index in range(workers)]
    for worker in every:
        worker.start(0)
    every[0].write("initialised", global_step=0)
    for step in range(rounds):
        taken = set(chance.sample(range(workers), replicas))
        for worker in every:
            if worker.index in taken or chance.random() < 0.5:
                worker.count(step, step + 1)
    for worker in every:
        worker.finish(global_step=rounds)
    return run_of(every, ReplicationRules("sync", workers, replicas))


def run_of(workers: list[Worker], rules: ReplicationRules) -> Run:
    """The run that these workers tell of."""
    tasks = {
        f"worker{worker.index}": TaskRecords(f"worker{worker.index}", tuple(worker.records))
        for worker in workers
    }
    expected = tuple(RunTask("worker", worker.index, "host") for worker in workers)
    return Run(Path(), "run", rules=rules, expected=expected, tasks=tasks)
