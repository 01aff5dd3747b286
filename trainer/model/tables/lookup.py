"""The tables of a model: where their rows lie, their first values, and the look-up of the rows of a batch.

The tables of one width are *fused* into one table: the rows of the first, then the rows of the second, and so
on. With n ps, row r of a fused table lies on ps r mod n, as row r div n of the part there (`TableVariable`),
so that rows which are needed often are spread over all ps. A step exchanges three tensors with each ps,
whatever the number of tables: the positions of the rows that the batch needs, the rows, and their gradients.
A row travels once, however many examples of the batch need it, and its position stays on the ps until its
gradient arrives.

First values are hashed from the seed, the row and the column, so they do not depend on the number of ps.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from trainer.model.models.model import Model, ModelContext, Table
from trainer.model.pieces import TableVariable
from trainer.model.scrambling import scramble

v1 = tf.compat.v1

# How many first values are made at once, so that making them needs little memory beside the part itself.
_AT_ONCE = 1 << 18
_LARGEST_INT32 = 2**31 - 1
_ZERO = np.float32(0)

# A function of (table, number of the part, positions in the part) that returns the rows there.
Gather = Callable[[TableVariable, int, tf.Tensor], tf.Tensor]


class RowGradients(NamedTuple):
    """The gradients of some rows of a table's part, on the part's ps.

    Attributes:
        values: float32 [rows, width].
        positions: int32 or int64 [rows], the positions of the rows in the part, all different.

    """

    values: tf.Tensor
    positions: tf.Tensor


class _Fused(NamedTuple):
    """The tables of one width, each with its index among the model's, and the variable with their rows."""

    tables: Sequence[tuple[int, Table]]
    variable: TableVariable

    @property
    def begins(self) -> list[int]:
        """The first row of each table in the fused table."""
        return [0, *accumulate(table.rows for _, table in self.tables[:-1])]

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return self.tables[0][1].width

    @property
    def needs(self) -> object:
        """A key that says how rows are chosen: a batch needs equal rows of fused tables with equal keys."""
        return tuple((table.ids, table.rows) for _, table in self.tables)


class _Needed(NamedTuple):
    """The rows of a fused table that a batch needs, each once, sorted by part.

    Attributes:
        positions: for each part, the positions of the needed rows in it.
        places: int32 [batch, ids of an example], the index of each id's row among the needed rows.
        columns: for each table, how many of its ids an example has.

    """

    positions: Sequence[tf.Tensor]
    places: tf.Tensor
    columns: Sequence[int]


class Tables:
    """A model's tables in the default graph.

    Attributes:
        variables: the fused tables.

    """

    def __init__(
        self,
        model: Model,
        context: ModelContext,
        wire_dtype: tf.DType = tf.float32,
        gather: Gather | None = None,
    ) -> None:
        """Create a part of each fused table on every ps; without ps, one part on the worker.

        Rows and their gradients travel as `wire_dtype`. With `gather`, a look-up takes the rows from this
        function instead of the parts, which then need no values.
        """
        self.wire_dtype, self.gather = wire_dtype, gather or _from_variable
        self.devices = [_cpu_of(device) for device in context.devices.ps or [context.devices.worker]]
        self._tables = list(model.tables(context))
        by_width: dict[int, list[tuple[int, Table]]] = {}
        for number, table in enumerate(self._tables):
            by_width.setdefault(table.width, []).append((number, table))
        self.fused = [_Fused(tables, self._create(tables)) for tables in by_width.values()]
        self.variables = [fused.variable for fused in self.fused]
        self._seed = context.settings.seed

    @property
    def places(self) -> list[tuple[Table, int]]:
        """Pairs (table, number of its first row in its fused table), in the order of the model's tables."""
        places = {
            number: (table, begin)
            for fused in self.fused
            for (number, table), begin in zip(fused.tables, fused.begins, strict=True)
        }
        return [places[number] for number in sorted(places)]

    def first_values(self) -> list[tf.Operation]:
        """Return operations, one for each part of a fused table, that give each row its first value.

        A fused table whose first values are all 0 has no operations; its rows must be 0 already.
        """
        return [operation for fused in self.fused for operation in _first_values(fused, self._seed)]

    def look_up(
        self, context: ModelContext, features: tf.Tensor, after: Sequence[tf.Tensor] = ()
    ) -> "LookUp":
        """Add the look-up of the rows that a batch of features needs; the ps read once `after` exist.

        Running it raises tf.errors.InvalidArgumentError if an id is not a row of its table.
        """
        with tf.name_scope("look_up"):
            needed: dict[object, _Needed] = {}
            for fused in self.fused:
                if fused.needs not in needed:
                    with tf.device("/device:CPU:0"):
                        ids = [table.ids(context, features) for _, table in fused.tables]
                        needed[fused.needs] = _needed(fused, ids)
            return LookUp(self, needed, after)

    def _create(self, tables: Sequence[tuple[int, Table]]) -> TableVariable:
        rows, width = sum(table.rows for _, table in tables), tables[0][1].width
        name, parts = f"tables_{width}", len(self.devices)
        sizes = [len(range(number, rows, parts)) for number in range(parts)]
        return TableVariable(
            name,
            rows,
            tuple(
                create_filled(f"{name}/part_{number}", device, [size, width])
                for number, (device, size) in enumerate(zip(self.devices, sizes, strict=True))
            ),
        )


class LookUp:
    """The look-up of a batch in the default graph.

    Attributes:
        rows: for each fused table, the rows that the batch needs, each once: float32 [rows, width].

    """

    def __init__(self, tables: Tables, needed: Mapping[object, _Needed], after: Sequence[tf.Tensor]) -> None:
        """Add the look-up; `needed` maps the key `_Fused.needs` to the needed rows."""
        self._tables, self._needed = tables, [needed[fused.needs] for fused in tables.fused]
        # For each ps and fused table, the positions of the needed rows, as tensors on the ps.
        self._arrived: list[Sequence[tf.Tensor]] = []
        pulled = []
        for number, device in enumerate(tables.devices if needed else []):
            positions = [each.positions[number] for each in self._needed]
            request = _request([each.positions[number] for each in needed.values()])
            with tf.device(device):
                of_needs = dict(zip(needed, _split_request(request, len(needed)), strict=True))
                arrived = [of_needs[fused.needs] for fused in tables.fused]
                with tf.control_dependencies(after):
                    read = [
                        tables.gather(variable, number, own)
                        for variable, own in zip(tables.variables, arrived, strict=True)
                    ]
                flat = self._pack(read)
            self._arrived.append(arrived)
            pulled.append(self._unpack(flat, positions))
        self.rows = [tf.concat(of_table, axis=0) for of_table in zip(*pulled, strict=True)]

    def values(self, rows: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return, for each of the model's tables, its rows: float32 [batch, ids of an example, width].

        `rows` are the values to use for the attribute `rows`, in the same shapes and order.
        """
        values: dict[int, tf.Tensor] = {}
        for fused, needed, own in zip(self._tables.fused, self._needed, rows, strict=True):
            of_ids = tf.ensure_shape(tf.gather(own, needed.places), [None, sum(needed.columns), fused.width])
            numbers = [number for number, _ in fused.tables]
            values.update(zip(numbers, tf.split(of_ids, needed.columns, axis=1), strict=True))
        return [values[number] for number in range(len(values))]

    def sum_gradients(self, gradients: Sequence[tf.Tensor | tf.IndexedSlices | None]) -> list[tf.Tensor]:
        """Return a dense gradient for each tensor of `rows`, in the same order and shape.

        `gradients` are TensorFlow's gradients of `rows`. A row's gradient is the sum over all ids that need
        the row; None becomes zeros.
        """
        dense = []
        for gradient, rows in zip(gradients, self.rows, strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                count = tf.shape(rows)[0]
                dense.append(tf.math.unsorted_segment_sum(gradient.values, gradient.indices, count))
            else:
                dense.append(tf.zeros_like(rows) if gradient is None else gradient)
        return dense

    def push(self, gradients: Sequence[tf.Tensor]) -> list[tuple[RowGradients, tf.Variable]]:
        """Return a pair (gradients of some rows, part of a fused table) for each part, on the part's ps.

        `gradients` are dense gradients of `rows`, as `sum_gradients` returns them.
        """
        of_parts = [
            tf.split(gradient, tf.stack([tf.size(own) for own in needed.positions]), num=len(self._arrived))
            for gradient, needed in zip(gradients, self._needed, strict=True)
        ]
        pushed = []
        for number, arrived in enumerate(self._arrived):
            flat = self._pack([parts[number] for parts in of_parts])
            with tf.device(self._tables.devices[number]):
                received = self._unpack(flat, arrived)
            parts = [variable.pieces[number] for variable in self._tables.variables]
            pushed += list(zip(map(RowGradients, received, arrived), parts, strict=True))
        return pushed

    def _pack(self, rows: Sequence[tf.Tensor]) -> tf.Tensor:
        flat = tf.concat([tf.reshape(own, [-1]) for own in rows], axis=0)
        return tf.cast(flat, self._tables.wire_dtype)

    def _unpack(self, flat: tf.Tensor, positions: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        widths = [fused.width for fused in self._tables.fused]
        sizes = tf.stack([tf.size(own) * width for own, width in zip(positions, widths, strict=True)])
        parts = tf.split(tf.cast(flat, tf.float32), sizes, num=len(widths))
        return [tf.reshape(part, [-1, width]) for part, width in zip(parts, widths, strict=True)]


def create_filled(
    name: str,
    device: str,
    shape: Sequence[int],
    value: np.generic = _ZERO,
    collection: str = v1.GraphKeys.GLOBAL_VARIABLES,
) -> tf.Variable:
    """Create and return a variable on `device`, filled with `value`, whose type it has; the device fills it.

    `collection` is the graph's collection to which the variable is added.
    """
    dtype = tf.as_dtype(value.dtype)

    def first_value(shape: Sequence[int], dtype: tf.DType) -> tf.Tensor:
        with tf.device(device):
            # If TensorFlow saw that the value is a constant, it would make a constant that stays in memory.
            zero = tf.raw_ops.Empty(shape=[], dtype=dtype, init=True)
            return tf.fill(shape, zero + tf.constant(value))

    with tf.device(device):
        return v1.get_variable(
            name, shape, dtype, initializer=first_value, use_resource=True, collections=[collection]
        )


def _from_variable(table: TableVariable, part: int, positions: tf.Tensor) -> tf.Tensor:
    handle = table.pieces[part].handle
    return tf.raw_ops.ResourceGather(resource=handle, indices=positions, dtype=tf.float32)


def _cpu_of(device: str) -> str:
    """Return the CPU of the task of `device`, such as "/job:ps/task:0/device:CPU:0"."""
    place = tf.DeviceSpec.from_string(device).replace(device_type="CPU", device_index=0)
    return str(place.to_string())


def _needed(fused: _Fused, ids: Sequence[tf.Tensor]) -> _Needed:
    columns, parts = [own.shape[1] for own in ids], len(fused.variable.pieces)
    together = tf.concat(ids, axis=1)
    limits = np.repeat([table.rows for _, table in fused.tables], columns)
    # A negative id, read as an unsigned number, is larger than any limit.
    are_rows = tf.bitcast(together, tf.uint64) < limits.astype(np.uint64)
    names = ", ".join(table.name for _, table in fused.tables)
    wrong = f"an id is not a row of its table ({names})"
    with tf.control_dependencies([tf.raw_ops.Assert(condition=tf.reduce_all(are_rows), data=[wrong])]):
        rows = tf.reshape(together + np.repeat(fused.begins, columns), [-1])
    unique, places = tf.unique(tf.cast(rows, _type_for(fused.variable.rows)))
    positions = [unique]
    if parts > 1:
        part_of = tf.cast(unique % parts, tf.int32)
        numbers = tf.dynamic_partition(tf.range(tf.size(unique)), part_of, parts)
        positions = tf.dynamic_partition(unique // parts, part_of, parts)
        places = tf.gather(tf.math.invert_permutation(tf.concat(numbers, axis=0)), places)
    largest = fused.variable.pieces[0].shape[0]
    positions = [tf.cast(own, _type_for(largest)) for own in positions]
    return _Needed(positions, tf.reshape(places, tf.shape(together)), columns)


def _type_for(rows: int) -> tf.DType:
    return tf.int32 if rows <= _LARGEST_INT32 else tf.int64


def _request(positions: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return one tensor for a ps: the number of rows to read of each table, then the positions of the rows.

    `positions` has a tensor for each table.
    """
    dtype = max((own.dtype for own in positions), key=lambda each: each.size)
    with tf.device("/device:CPU:0"):
        counts = tf.cast(tf.stack([tf.size(own) for own in positions]), dtype)
        return tf.concat([counts, *(tf.cast(own, dtype) for own in positions)], axis=0)


def _split_request(request: tf.Tensor, tables: int) -> list[tf.Tensor]:
    """Return the positions for each of `tables` tables in a request, on the current `tf.device`."""
    request = tf.identity(request)
    parts: list[tf.Tensor] = tf.split(request[tables:], request[:tables], num=tables)
    return parts


def _first_values(fused: _Fused, seed: int) -> list[tf.Operation]:
    """Return an operation for each part that sets its first values; [] if all first values are 0."""
    if not any(table.scale for _, table in fused.tables):
        return []
    return [_fill(fused, number, _key(seed, fused.width)) for number in range(len(fused.variable.pieces))]


def _fill(fused: _Fused, number: int, key: np.uint64) -> tf.Operation:
    part, parts = fused.variable.pieces[number], len(fused.variable.pieces)
    at_once = max(1, _AT_ONCE // fused.width)
    scales = np.array([table.scale for _, table in fused.tables], np.float32)

    def fill(start: tf.Tensor) -> tf.Tensor:
        positions = tf.range(start, tf.minimum(start + at_once, part.shape[0]))
        rows = positions * parts + number
        places = rows[:, tf.newaxis] * fused.width + np.arange(fused.width)
        of_rows = tf.gather(scales, tf.searchsorted(np.array(fused.begins, np.int64), rows, side="right") - 1)
        values = _uniform(tf.bitcast(places, tf.uint64), key) * of_rows[:, tf.newaxis]
        with tf.control_dependencies(
            [tf.raw_ops.ResourceScatterUpdate(resource=part.handle, indices=positions, updates=values)]
        ):
            return start + at_once

    with tf.device(part.device):
        begin = tf.identity(tf.constant(0, tf.int64))
        end = v1.while_loop(lambda start: start < part.shape[0], fill, [begin], parallel_iterations=1)
        return end.op


def _key(seed: int, width: int) -> np.uint64:
    """Return the key from which first values of tables of this width are hashed, with this seed."""
    return np.uint64(scramble(scramble(np.array([seed], np.uint64), np) + np.uint64(width), np)[0])


def _uniform(places: tf.Tensor, key: np.uint64) -> tf.Tensor:
    """Return for each place a float32 from -1 (included) to 1 (excluded), exact on every machine."""
    bits = tf.bitwise.right_shift(scramble(places + key, tf.bitwise), np.uint64(64 - 24))
    return tf.cast(tf.bitcast(bits, tf.int64), tf.float32) * np.float32(2**-23) - np.float32(1)
