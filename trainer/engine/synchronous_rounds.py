"""The graph of synchronous steps: gradients are gathered on the ps in rounds, and their mean is applied once.

This is the algorithm of Chen et al., "Revisiting Distributed Synchronous SGD" (arXiv:1604.00981). A *round*
is an attempt at a global step. Accumulators on the ps gather the gradients (accumulators.py), and drop
gradients that were computed in an earlier round. In each round, the first `replicas` workers whose gradients
lie on every ps are admitted, each once. So the means of all variables are over the same workers, and the
counters on ps 0 count exactly these workers.

The worker that adds the last gradients of a round completes the round in the same call: each ps applies its
means, then ps 0 counts the step and opens the next round. Each ps notes the last round that it applied, so
that the chief can complete the round if that worker stops (round_keeper.py).

A variable on ps 0 holds the rounds, int64 [3 + 2 * workers]: the open round; 1 while rounds are held, else 0;
the run's last step; for each worker the last round to which it was admitted; for each worker the last round
to which it added all its gradients. A worker's bell (bells.py) rings when a round is opened.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.coordination.ledger_parts import FIRST_WORKER, GLOBAL_STEP, variable_on
from trainer.engine.accumulators import SentGradients, accumulator_of
from trainer.engine.bells import create_bell, ring
from trainer.engine.branch import Branch
from trainer.engine.mutex import locked
from trainer.engine.optimizers import AnyGradients, Optimizers

v1 = tf.compat.v1

# The number of the open round while no round is open: the variables are being set, the chief has not begun,
# or the run has made its last step.
CLOSED = 0
# Stands for "no round" where a round to take part in, or to complete, is expected. Accumulators drop
# gradients with this step, because the step of an accumulator is always higher.
_NONE = -1
# Indices in the variable of the rounds; `_FIRST` is the first index of worker 0.
_OPEN, _HELD, _LAST_STEP, _FIRST = range(4)


@dataclass(frozen=True)
class Standing:
    """The state of the rounds, and the counters of the ledger, which are read after the rounds.

    Attributes:
        round: the number of the open round, or CLOSED.
        admitted: for each worker the last round to which it was admitted.
        delivered: for each worker the last round to which it added all its gradients.
        counters: [global step, stop code, steps of worker 0, ...].

    """

    round: int
    admitted: tuple[int, ...]
    delivered: tuple[int, ...]
    counters: tuple[int, ...]

    @classmethod
    def from_values(cls, values: npt.NDArray[np.int64]) -> "Standing":
        """Return the standing in `values`: the numbers of the variable of the rounds, then the counters."""
        numbers = values.tolist()
        workers = (len(numbers) - _FIRST - FIRST_WORKER) // 3
        admitted, delivered, counters = _FIRST, _FIRST + workers, _FIRST + 2 * workers
        return cls(
            numbers[_OPEN],
            tuple(numbers[admitted:delivered]),
            tuple(numbers[delivered:counters]),
            tuple(numbers[counters:]),
        )

    @property
    def contributors(self) -> tuple[int, ...]:
        """The indices of the workers whose gradients are in every accumulator of the open round.

        If no round is open: the workers that have not delivered to any round.
        """
        return tuple(worker for worker, last in enumerate(self.delivered) if last == self.round)

    @property
    def awaited(self) -> tuple[int, ...]:
        """The indices of all workers that are not in `contributors`."""
        return tuple(worker for worker, last in enumerate(self.delivered) if last != self.round)

    @property
    def half_delivered(self) -> tuple[int, ...]:
        """The indices of the workers that are admitted to the open round, but still have gradients to add."""
        return tuple(worker for worker in self.awaited if self.admitted[worker] == self.round)


class _Part:
    """The part of the rounds on one ps: its accumulators of gradients, and the last round that it applied."""

    def __init__(self, device: str, sent: Sequence[SentGradients], workers: int, worker: int) -> None:
        """Create the part in the default graph, for the gradients in `sent` that go to `device`."""
        self._device = device
        place = device.replace("/", "_").replace(":", "_")
        with tf.device(device):
            # A local variable is not saved: rounds belong to the processes, not to the model.
            self.applied = variable_on(f"applied{place}", "", [], tf.int64, v1.GraphKeys.LOCAL_VARIABLES)
            self._mutex = tf.raw_ops.MutexV2(shared_name=f"psfleet/applied_mutex{place}", container="")
            self.accumulators = [accumulator_of(each, workers, worker) for each in self._on_device(sent)]

    def add(self, sent: Sequence[SentGradients], local_step: tf.Tensor) -> list[tf.Operation]:
        """Return the operations that add this ps's gradients in `sent`, computed in round `local_step`."""
        with tf.device(self._device):
            return [
                accumulator.add(each, local_step)
                for accumulator, each in zip(self.accumulators, self._on_device(sent), strict=True)
            ]

    def build(self, replicas: int, optimizers: Optimizers) -> None:
        """Add the operations by which this ps applies the means of a round, each over `replicas` workers."""

        def apply_once(round_: tf.Tensor) -> tf.Tensor:
            def apply_means() -> tf.Tensor:
                gradients = [pair for each in self.accumulators for pair in each.mean(replicas)]
                with tf.control_dependencies(optimizers.apply(gradients)):
                    noted = self.applied.assign(round_, read_value=False)
                with tf.control_dependencies([noted]):
                    return tf.constant(True)

            def change() -> tf.Tensor:
                is_due = self.applied.read_value() < round_
                return tf.cond(is_due, apply_means, lambda: tf.constant(False))

            return locked(self._mutex, change)

        with tf.device(self._device):
            self._apply_once = Branch(apply_once)

    def apply(self, round_: tf.Tensor) -> tf.Tensor:
        """Return a boolean tensor whose value exists once this ps has applied the means of round `round_`.

        A round that was applied before is not applied again. If `round_` is _NONE, nothing is applied and the
        value exists at once.
        """
        with tf.device(self._device):
            # A branch takes its inputs from where they are: so the number comes to this ps first,
            # as one tensor.
            round_ = tf.identity(round_)
            return self._apply_once.run_if(tf.not_equal(round_, _NONE), round_)

    def _on_device(self, sent: Sequence[SentGradients]) -> list[SentGradients]:
        return [each for each in sent if each.device == self._device]


class RoundOperations:
    """The operations of workers and the chief in a round; every process builds the same variables on the ps.

    A mean is over the gradients of `replicas` of the `workers`; this process is worker number `worker`. The
    variable of the rounds is on the device of `counters` (trainer/coordination/ledger.py).

    Attributes:
        standing: the current standing, int64 [3 + 2 * workers + counters]; see `Standing.from_values`.
        wait: the same, read after this worker's bell has rung.
        offered: pairs (this worker's gradient of one batch, variable), as they go into the means.

    """

    def __init__(self, workers: int, worker: int, replicas: int, counters: tf.Variable) -> None:
        """Add the variable of the rounds, and the operations that read it, to the default graph."""
        self.workers, self.worker, self.replicas, self.counters = workers, worker, replicas, counters
        # The gradients of one batch, as they go into the means.
        self.offered: AnyGradients = []
        with tf.device(counters.device):
            places = [_FIRST + 2 * workers]
            self._rounds = variable_on("rounds", "", places, tf.int64, v1.GraphKeys.LOCAL_VARIABLES)
            self._mutex = tf.raw_ops.MutexV2(shared_name="psfleet/rounds_mutex", container="")
            self._bells = [create_bell(f"worker{number}") for number in range(workers)]
            own = self._bells[worker]
            self.ring_own = ring([own])
        self.standing = self._read_standing()
        self.wait = self._read_after(own)

    def build(self, sent: Sequence[SentGradients], optimizers: Optimizers) -> None:
        """Add the operations that gather and apply gradients shaped like `sent`.

        Call this once, before the first `offer`.
        """
        self.offered = [pair for each in sent for pair in each.pairs]
        optimizers.apply(self.offered)  # this is never run; it creates the optimizers' own variables
        with tf.name_scope("aggregation"):
            devices = dict.fromkeys(each.device for each in sent)
            self._parts = [_Part(device, sent, self.workers, self.worker) for device in devices]
            for part in self._parts:
                part.build(self.replicas, optimizers)
            with tf.device(self.counters.device):
                self._count = Branch(self._count_and_open)
            applied = [part.applied.initializer for part in self._parts]
            self.initializers = [self._rounds.initializer, *applied]
            self._build_keeping()

    def offer(self, standing: tf.Tensor, sent: Sequence[SentGradients]) -> tuple[tf.Tensor, tf.Tensor]:
        """Offer one batch's gradients, complete the round if they are its last, and wait for the bell.

        The gradients must be computed with variables that were read after `standing`.

        Return (the standing afterwards, the microseconds of waiting for this worker's bell), both int64, on
        ps 0. The microseconds are by the clock of ps 0.
        """
        with tf.name_scope("aggregation"), tf.device(self.counters.device):
            own_round = standing[_OPEN]
            local_step = self._admission(own_round, [each.arrived for each in sent])
            added = [operation for part in self._parts for operation in part.add(sent, local_step)]
            with tf.control_dependencies(added):
                round_to_complete = self._delivery(local_step)
            with tf.control_dependencies([self._completion(round_to_complete)]):
                began = tf.timestamp()
            with tf.control_dependencies([began]):
                after = self._read_after(self._bells[self.worker])
            with tf.control_dependencies([after]):
                return after, tf.cast(1e6 * (tf.timestamp() - began), tf.int64)

    def _read_standing(self) -> tf.Tensor:
        with tf.device(self.counters.device):
            rounds = self._rounds.read_value()
            with tf.control_dependencies([rounds]):
                counters = self.counters.read_value()
            return tf.concat([rounds, counters], axis=0)

    def _read_after(self, bell: tf.queue.QueueBase) -> tf.Tensor:
        """Return the standing, read once `bell` has rung."""
        with tf.device(self.counters.device), tf.control_dependencies([bell.dequeue()]):
            return self._read_standing()

    def _admission(self, own_round: tf.Tensor, received: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the step with which to add gradients: `own_round` if this worker is admitted, else _NONE.

        A worker is admitted if the round is open, has fewer than `replicas` workers, and has not admitted it
        before. It is admitted only once its gradients, `received`, lie on every ps, so that a worker with a
        slow link does not take the place of a faster worker.
        """

        def admit() -> tf.Tensor:
            now = self._rounds.read_value()
            is_open = tf.equal(now[_OPEN], own_round) & tf.not_equal(own_round, CLOSED)
            admitted = tf.equal(now[_FIRST : _FIRST + self.workers], own_round)
            is_place_left = tf.reduce_sum(tf.cast(admitted, tf.int32)) < self.replicas
            is_wanted = is_open & is_place_left & ~admitted[self.worker]
            place = _FIRST + self.worker
            with tf.control_dependencies([self._set(place, tf.where(is_wanted, own_round, now[place]))]):
                return tf.where(is_wanted, own_round, tf.constant(_NONE, tf.int64))

        # `own_round` too, because gradients that do not depend on the variables may arrive before it
        # is read.
        with tf.control_dependencies([own_round, *received]):
            return locked(self._mutex, admit)

    def _delivery(self, local_step: tf.Tensor) -> tf.Tensor:
        """Note that this worker's gradients are added; return the round that it has to complete, or _NONE.

        The result is an int64 scalar: the open round if this worker was the last of `replicas` workers to add
        its gradients, and rounds are not held. If `local_step` is _NONE, nothing is noted.
        """

        def deliver() -> tf.Tensor:
            now = self._rounds.read_value()
            is_admitted = tf.equal(local_step, now[_OPEN])
            others = tf.reduce_sum(tf.cast(tf.equal(now[_FIRST + self.workers :], now[_OPEN]), tf.int32))
            is_last = is_admitted & tf.equal(now[_HELD], 0) & (others + 1 >= self.replicas)
            place = _FIRST + self.workers + self.worker
            with tf.control_dependencies([self._set(place, tf.where(is_admitted, local_step, now[place]))]):
                return tf.where(is_last, local_step, tf.constant(_NONE, tf.int64))

        return locked(self._mutex, deliver)

    def _completion(self, round_: tf.Tensor) -> tf.Tensor:
        """Complete round `round_`: apply and count it, and open the next; return a boolean tensor.

        The value of the tensor exists once that is done. If `round_` is _NONE, nothing is done and the value
        exists at once.
        """
        applied = [part.apply(round_) for part in self._parts]
        with tf.device(self.counters.device), tf.control_dependencies(applied):
            return self._count.run_if(tf.not_equal(round_, _NONE), round_)

    def _count_and_open(self, round_: tf.Tensor) -> tf.Tensor:
        """Count round `round_`, which every ps has applied, open the next round, and ring all bells.

        Return a boolean tensor whose value exists once that is done. If the round was counted before, only
        the bells ring. After the last step, no round is opened.
        """

        def follow() -> tf.Tensor:
            now = self._rounds.read_value()
            is_due = tf.equal(now[_OPEN], round_)
            contributed = tf.equal(now[_FIRST + self.workers :], round_)
            one_step = tf.one_hot(GLOBAL_STEP, FIRST_WORKER, on_value=True, off_value=False)
            increment = tf.cast(tf.concat([one_step, contributed], axis=0) & is_due, tf.int64)
            step = self.counters.assign_add(increment, read_value=True)[GLOBAL_STEP]
            following = tf.where(step < now[_LAST_STEP], round_ + 1, tf.constant(CLOSED, tf.int64))
            with tf.control_dependencies([self._set(_OPEN, tf.where(is_due, following, now[_OPEN]))]):
                return tf.identity(is_due)

        with tf.control_dependencies([locked(self._mutex, follow)]):
            rung = ring(self._bells)
        with tf.control_dependencies([rung]):
            return tf.constant(True)

    def _build_keeping(self) -> None:
        """Add the operations of the chief's keeper, which feeds `round`, and for `open` also `last_step`.

        - `complete` completes the round, which must have all its gradients.
        - `hold` and `release`: no worker completes a round between them.
        - `move` sets the step of all accumulators to the round.
        - `counts` are the numbers of gradients, one for each accumulator; each of `drops` empties one
          accumulator.
        - `open` opens the round, and rings all bells.
        """
        device = self.counters.device
        with tf.device(device):
            self.round, self.last_step = v1.placeholder(tf.int64, []), v1.placeholder(tf.int64, [])
            self.complete = self._completion(self.round)
            self.hold = locked(self._mutex, lambda: self._set_held(1))
            self.release = self._set_held(0)
        self.counts, self.drops, moves = [], [], []
        for part in self._parts:
            for accumulator in part.accumulators:
                with tf.device(part.applied.device):
                    own = accumulator.accumulator
                    self.counts.append(own.num_accumulated())
                    self.drops.append(tf.group(own.take_grad(1)))
                    moves.append(own.set_global_step(self.round))
        self.move = tf.group(*moves)
        with tf.device(device):
            with tf.control_dependencies([self._set(_LAST_STEP, self.last_step)]):
                opened = self._set(_OPEN, self.round)
            with tf.control_dependencies([opened]):
                self.open = ring(self._bells)

    def _set_held(self, value: int) -> tf.Tensor:
        with tf.control_dependencies([self._set(_HELD, tf.constant(value, tf.int64))]):
            return tf.constant(True)

    def _set(self, place: int, value: tf.Tensor) -> tf.Operation:
        """Return the operation that sets the number at index `place` of the variable of the rounds."""
        return v1.scatter_update(self._rounds, [place], [value]).op
