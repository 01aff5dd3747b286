"""What the programs share: the trainer's flags, models and data."""

import re
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from benchmarks.programs.embeddings import MODEL
from trainer.contract.json_files import write_json
from trainer.contract.records import open_records
from trainer.contract.step_windows import StepWindows
from trainer.model.data import Examples
from trainer.model.models import REGISTRY
from trainer.model.models.model import Devices, ModelContext
from trainer.process.console import say
from trainer.process.flags import Options

v1 = tf.compat.v1
_SECONDS_BETWEEN_REPORTS = 0.5
# The sums of squares at which the trainer's `adagrad` begins: for rows of tables, and for all other
# variables.
_SQUARES_OF_ROWS, _SQUARES = 1e-6, 0.1


class _Adagrad(v1.train.AdagradOptimizer):  # type: ignore[name-defined]
    """TensorFlow's Adagrad, but the sums of squares begin at 1e-6 for the named `tables` (else 0.1)."""

    def __init__(self, learning_rate: float, tables: Collection[str]) -> None:
        super().__init__(learning_rate)
        self._tables = tables

    def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
        for variable in var_list:
            of_table = any(name in self._tables for name in re.split("[/:]", variable.name))
            self._initial_accumulator_value = _SQUARES_OF_ROWS if of_table else _SQUARES
            super()._create_slots([variable])


class Training:
    """What the trainer's command line describes: a model, its training examples and its optimizer."""

    def __init__(self, options: Options) -> None:
        settings, cluster = options.settings, options.cluster
        self._model = {**REGISTRY, MODEL.name: MODEL}[settings.model]
        self.batch_size = settings.batch_size
        self._optimizer = self._model.optimizer_name(settings)
        self._learning_rate = self._model.learning_rate(settings, cluster.workers)
        data = self._model.load(settings, cluster.workers)
        self.examples = data.train.read(0, len(data.train))
        self._context = ModelContext(settings, data, Devices((), ""))
        self._tables = self._model.tables(self._context)

    def variables(self) -> list[tf.Variable]:
        """Create and return the model's variables, without its tables; the caller's scopes place them."""
        return list(self._model.create_variables(self._context))

    def tables(self, parts: int = 1) -> list[Any]:
        """Create and return the model's tables, one variable for each; the caller's scopes place them.

        With `parts` above 1, each table is a partitioned variable with so many parts.
        """
        partitioner = v1.fixed_size_partitioner(parts) if parts > 1 else None
        return [
            v1.get_variable(
                table.name,
                [table.rows, table.width],
                initializer=v1.random_uniform_initializer(-table.scale, table.scale),
                partitioner=partitioner,
            )
            for table in self._tables
        ]

    def optimizer(self) -> tf.compat.v1.train.Optimizer:
        """Return a new optimizer of TensorFlow with the trainer's constants: Adagrad or Adam.

        It is Adagrad if the trainer would use "adagrad", else Adam.
        """
        if self._optimizer == "adagrad":
            return _Adagrad(self._learning_rate, {table.name for table in self._tables})
        return v1.train.AdamOptimizer(self._learning_rate)

    def placeholders(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Return two placeholders for a batch: features [batch, width], and labels [batch]."""
        features, labels = self.examples.features, self.examples.labels
        x = v1.placeholder(self.examples.feature_type, [None, features.shape[1]])
        return x, v1.placeholder(tf.as_dtype(labels.dtype), [None])

    def loss(
        self,
        variables: Sequence[tf.Variable],
        tables: Sequence[Any],
        features: tf.Tensor,
        labels: tf.Tensor,
    ) -> tf.Tensor:
        """Return the mean loss of a batch, a scalar.

        `variables` and `tables` are those of `variables()` and `tables()`; rows are looked up in the tables.
        """
        rows = [
            v1.nn.embedding_lookup(values, table.ids(self._context, features), partition_strategy="div")
            for values, table in zip(tables, self._tables, strict=True)
        ]
        return self._model.loss(self._context, [*variables, *rows], features, labels)

    def dataset(self, seed: int | None) -> tf.data.Dataset:
        """Return an endless dataset of full batches (features, labels), shuffled anew in each epoch.

        A `seed` of None means another order in each run. Each batch is gathered at once: to gather single
        examples would take five times as long.
        """
        features, labels = self.examples.features, self.examples.labels
        numbers = tf.data.Dataset.range(len(features)).shuffle(len(features), seed).repeat()
        batches = numbers.batch(self.batch_size, drop_remainder=True)
        return batches.map(lambda batch: (tf.gather(features, batch), tf.gather(labels, batch))).prefetch(4)


class FedBatches:
    """Endless shuffled batches of examples in memory, for feed_dict, as in TensorFlow 1's tutorials."""

    def __init__(self, examples: Examples, batch_size: int, seed: int) -> None:
        self._examples, self._batch_size = examples, batch_size
        self._generator = np.random.default_rng(seed)
        self._next = len(examples)

    def next_batch(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.generic]]:
        """Return (features, labels) of the next `batch_size` examples.

        If fewer are left, all examples are shuffled anew first.
        """
        if self._next + self._batch_size > len(self._examples):
            order = self._generator.permutation(len(self._examples))
            self._examples = Examples(self._examples.features[order], self._examples.labels[order])
            self._next = 0
        batch = slice(self._next, self._next + self._batch_size)
        self._next = batch.stop
        return self._examples.features[batch], self._examples.labels[batch]


class Progress:
    """Writes records of steps, and on the chief `progress.json`, as often as the trainer does."""

    def __init__(self, options: Options) -> None:
        self._path: Path | None = None
        if options.cluster.is_chief and options.run_directory is not None:
            self._path = options.run_directory / "progress.json"
        self._next = 0.0
        self._global_step, self._batch_size = 0, options.settings.batch_size
        # The records say nothing of staleness, like the records of a user's program.
        identity = replace(options.identity, program="benchmark")
        records = open_records(options.run_directory, identity, say)
        self._windows = StepWindows(records, options.settings.steps, self._batch_size)

    def report(self, global_step: int, loss: float, steps: int = 1) -> None:
        """Record `steps` more steps of this process, with their mean `loss`, which led to `global_step`.

        The chief also writes `progress.json`, at most twice a second.
        """
        examples = steps * self._batch_size
        self._windows.add_unread(loss, self._global_step, global_step, examples, steps)
        self._global_step = global_step
        now = time.monotonic()
        if self._path is not None and now >= self._next:
            self._next = now + _SECONDS_BETWEEN_REPORTS
            write_json(self._path, {"wall": round(time.time(), 3), "global_step": global_step, "loss": loss})


def runtime(threads: int | None, least: int = 1) -> tf.compat.v1.ConfigProto:
    """Set TensorFlow's numbers of threads in this process, and return a session configuration with the same.

    `threads` is the trainer's --threads, for a single operation and for operations side by side (here at
    least `least`); None means TensorFlow's choice. Call this first, because even a dataset creates the thread
    pool that all operations share.
    """
    within, operations = threads or 0, max(threads or 0, least)
    tf.config.threading.set_intra_op_parallelism_threads(within)
    tf.config.threading.set_inter_op_parallelism_threads(operations)
    return v1.ConfigProto(intra_op_parallelism_threads=within, inter_op_parallelism_threads=operations)
