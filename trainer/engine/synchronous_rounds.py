"""The graph of synchronous steps: gradients are gathered on the ps in rounds, and their mean is applied once.

This is the algorithm of Chen et al., "Revisiting Distributed Synchronous SGD" (arXiv:1604.00981). It uses
TensorFlow's conditional accumulators, one for each variable, on that variable's ps. A *round* is an attempt
at a global step. The accumulators themselves drop gradients that were computed in an earlier round. In each
round, the first `replicas` workers whose gradients lie on every ps are admitted, each once. So the means of
all variables are over the same workers, and the counters on ps 0 count exactly these workers.

A variable on ps 0 holds the standing: [the open round, the last round to which each worker was admitted, the
last round for which all gradients of each worker have been added]. A worker's bell (bells.py) rings when a
round is opened, the aggregator's bell when a round has its gradients.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.coordination.ledger_parts import FIRST_WORKER, variable_on
from trainer.engine.bells import create_bell, ring
from trainer.engine.optimizers import Gradients, Optimizers

v1 = tf.compat.v1

# The number of the open round while none is: the variables are being set, or the aggregator has not begun.
CLOSED = 0
# Accumulators drop gradients with this step, because their own step is always higher.
_REFUSED = -1


@dataclass(frozen=True)
class Standing:
    """The rounds as ps 0 holds them, and the counters of the ledger, which are read after the rounds."""

    round: int
    admitted: tuple[int, ...]
    delivered: tuple[int, ...]
    counters: tuple[int, ...]

    @classmethod
    def from_values(cls, values: npt.NDArray[np.int64]) -> "Standing":
        """Return the standing for the values of both variables, rounds first."""
        open_round, *numbers = (int(value) for value in values)
        workers = (len(numbers) - FIRST_WORKER) // 3
        admitted, delivered = numbers[:workers], numbers[workers : 2 * workers]
        return cls(open_round, tuple(admitted), tuple(delivered), tuple(numbers[2 * workers :]))

    @property
    def contributors(self) -> tuple[int, ...]:
        """The workers whose gradients are in every accumulator of the open round."""
        return tuple(worker for worker, last in enumerate(self.delivered) if last == self.round)

    @property
    def awaited(self) -> tuple[int, ...]:
        """The workers whose gradients are not yet in every accumulator of the open round."""
        return tuple(worker for worker, last in enumerate(self.delivered) if last != self.round)

    @property
    def half_delivered(self) -> tuple[int, ...]:
        """The workers that were admitted to the open round but still have gradients to add."""
        return tuple(worker for worker in self.awaited if self.admitted[worker] == self.round)


@dataclass
class RoundOperations:
    """The operations of workers and the chief in a round; every process builds the same variables on the ps.

    A mean is over the gradients of `replicas` of the `workers`; this process is worker number `worker`. The
    rounds are on the device of the `counters` (trainer/coordination/ledger.py).
    """

    workers: int
    worker: int
    replicas: int
    counters: tf.Variable
    accumulators: list[tuple[tf.compat.v1.ConditionalAccumulator, tf.Variable]] = field(default_factory=list)
    offered: list[tuple[tf.Tensor, tf.Variable]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Add the rounds to the default graph."""
        with tf.device(self.counters.device):
            # A local variable is not saved: rounds belong to the processes, not to the model.
            places = [1 + 2 * self.workers]
            self._rounds = variable_on("rounds", "", places, tf.int64, v1.GraphKeys.LOCAL_VARIABLES)
            self._mutex = tf.raw_ops.MutexV2(shared_name="psfleet/rounds_mutex", container="")
            self._bells = [create_bell(f"worker{worker}") for worker in range(self.workers)]
            own, aggregators = self._bells[self.worker], create_bell("aggregator")
            self._aggregators_bell = aggregators
            self.ring_own, self.ring_aggregator = ring([own]), ring([aggregators])
        self.initializer = self._rounds.initializer
        self.standing = self._read_standing()
        self.wait, self.wait_for_gradients = self._read_after(own), self._read_after(aggregators)

    def build(self, loss: tf.Tensor, gradients: Gradients, optimizers: Optimizers) -> None:
        """Add `offer`, `advance`, and the operations that open a round.

        The gradients must be computed with variables that were read after `standing`.
        """
        with tf.name_scope("aggregation"):
            received = []
            for gradient, variable in gradients:
                with tf.device(variable.device):
                    name = f"psfleet/gradient/{variable.op.name}"
                    accumulator = v1.ConditionalAccumulator(variable.dtype, variable.shape, shared_name=name)
                    self.accumulators.append((accumulator, variable))
                    received.append(tf.identity(tf.convert_to_tensor(gradient)))
            self._build_offer(loss, received)
        self._build_advance(optimizers)
        self._build_opening()

    def _read_standing(self) -> tf.Tensor:
        with tf.device(self.counters.device):
            rounds = self._rounds.read_value()
            with tf.control_dependencies([rounds]):
                counters = self.counters.read_value()
            return tf.concat([rounds, counters], axis=0)

    def _read_after(self, bell: tf.queue.QueueBase) -> tf.Tensor:
        """Return the standing, read once this bell has rung."""
        with tf.device(self.counters.device), tf.control_dependencies([bell.dequeue()]):
            return self._read_standing()

    def _build_offer(self, loss: tf.Tensor, received: Sequence[tf.Tensor]) -> None:
        """Add `offer`, which offers one batch's gradients and waits for this worker's bell.

        It returns the loss and one tensor with the standing before, the standing after, and the microseconds
        of waiting for the bell, by the clock of ps 0.
        """
        local_step = self._admission(received)
        added = []
        for gradient, (accumulator, variable) in zip(received, self.accumulators, strict=True):
            with tf.device(variable.device):
                added.append(accumulator.apply_grad(gradient, local_step=local_step))
                self.offered.append((gradient, variable))
        with tf.device(self.counters.device), tf.control_dependencies(added):
            delivered = self._set(1 + self.workers + self.worker, local_step)
            with tf.control_dependencies([delivered]):
                now = self._rounds.read_value()
            deliveries = tf.reduce_sum(tf.cast(tf.equal(now[1 + self.workers :], now[0]), tf.int32))
            is_complete = tf.equal(local_step, now[0]) & (deliveries >= self.replicas)
            rung = ring([self._aggregators_bell], is_complete)
            with tf.control_dependencies([rung]):
                began = tf.timestamp()
            with tf.control_dependencies([began]):
                after = self._read_after(self._bells[self.worker])
            with tf.control_dependencies([after]):
                waited = tf.cast(1e6 * (tf.timestamp() - began), tf.int64)
            self.offer = [loss, tf.concat([self.standing, after, [waited]], axis=0)]

    def _admission(self, received: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the step with which to add gradients: this worker's round if it is admitted, else _REFUSED.

        A worker is admitted only once its gradients lie on every ps, so that one with a slow link does not
        take the place of a faster worker.
        """
        with tf.device(self.counters.device):
            own_round = self.standing[0]
            with tf.control_dependencies(received):
                lock = tf.raw_ops.MutexLock(mutex=self._mutex)
            with tf.control_dependencies([lock]):
                now = self._rounds.read_value()
            is_open = tf.logical_and(tf.equal(now[0], own_round), tf.not_equal(own_round, CLOSED))
            admitted = tf.equal(now[1 : 1 + self.workers], own_round)
            is_place_left = tf.reduce_sum(tf.cast(admitted, tf.int32)) < self.replicas
            is_wanted = is_open & is_place_left & ~admitted[self.worker]
            place = 1 + self.worker
            taken = self._set(place, tf.where(is_wanted, own_round, now[place]))
            with tf.control_dependencies([taken]):
                unlocked = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
            with tf.control_dependencies([unlocked]):
                return tf.where(is_wanted, own_round, tf.constant(_REFUSED, tf.int64))

    def _build_advance(self, optimizers: Optimizers) -> None:
        """Add `advance`: it applies the means, adds `increment` to the counters and opens `next_round`.

        It returns the counters. It is run only once all gradients are there, so that it never waits: a global
        step that waits could be interrupted in the middle.
        """
        means: list[tuple[tf.Tensor, tf.Variable]] = []
        for accumulator, variable in self.accumulators:
            with tf.device(variable.device):
                means.append((accumulator.take_grad(self.replicas), variable))
        self.increment = v1.placeholder(tf.int64, [FIRST_WORKER + self.workers])
        self.next_round = v1.placeholder(tf.int64, [])
        with tf.device(self.counters.device):
            with tf.control_dependencies(optimizers.apply(means)):
                counters = self.counters.assign_add(self.increment, read_value=True)
            # Taking a mean has already moved its accumulator on to the next round.
            with tf.control_dependencies([counters]):
                opened = self._set(0, self.next_round)
            with tf.control_dependencies([opened]):
                rung = ring(self._bells)
            with tf.control_dependencies([rung]):
                self.advance = tf.identity(counters)

    def _build_opening(self) -> None:
        """Add the operations that move all accumulators to `next_round`, empty them, and open that round."""
        self.counts, self.drops, moves = [], [], []
        for accumulator, variable in self.accumulators:
            with tf.device(variable.device):
                self.counts.append(accumulator.num_accumulated())
                self.drops.append(accumulator.take_grad(1).op)
                moves.append(accumulator.set_global_step(self.next_round))
        self.move = tf.group(*moves)
        with tf.device(self.counters.device), tf.control_dependencies([self._set(0, self.next_round)]):
            self.open = ring(self._bells)

    def _set(self, place: int, value: tf.Tensor) -> tf.Operation:
        """Return the operation that sets one number of the rounds and leaves the others as they are."""
        return v1.scatter_update(self._rounds, [place], [value]).op
