"""The fingerprint: a hash of the exact bits of a model's variables.

It is the same whether it is computed from a checkpoint or from the ps. The bits of each number are read as an
unsigned integer. Each integer is multiplied by an odd factor that depends on its place, and the products are
added modulo 2**64: this sum does not depend on the order in which threads add. At place i of the flattened
variable the factor is scramble(i % BLOCK) * scramble(i // BLOCK). Each variable gives a line "name dtype
[shape] sum"; the fingerprint is the first 16 hex digits of the SHA-256 of the sorted lines. The counters of
trainer/coordination/ledger.py are left out, because they are not part of the model.
"""

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.coordination.ledger_parts import COUNTERS, GLOBAL_STEP
from trainer.model.pieces import (
    AnyVariable,
    TableVariable,
    holder_of,
    name_of,
    offsets_of,
    pieces_of,
    split_array,
)
from trainer.model.scrambling import scramble
from trainer.model.tables.checkpoint_files import RowFile, SavedTable, positions_in, rows_in
from trainer.model.tables.checkpoint_rows import SavedRows

v1 = tf.compat.v1

# How many numbers are summed at once, so that a large variable is never copied whole.
BLOCK = 1 << 18

Values = Mapping[str, npt.NDArray[np.generic]]


def fingerprint_of(values: Values, tables: Sequence[SavedTable] = ()) -> str:
    """Return the fingerprint, 16 hex digits, of the variables {name: value} and tables of a checkpoint.

    The counters may be among the values, but do not count. `tables` are the tables whose rows are in files.
    Raises ValueError, which names the variable, if a variable does not hold numbers.
    """
    lines = [
        _line(name, value.dtype.name, value.shape, _sum_of(name, value))
        for name, value in values.items()
        if name != COUNTERS
    ]
    layouts = [(table.layout, table.total) for table in tables]
    return _digest(
        [*lines, *(_line(layout.table, layout.dtype, layout.shape, total) for layout, total in layouts)]
    )


def fingerprints_of_ps(
    variables: Iterable[AnyVariable], values: Values, sums: Mapping[str, Mapping[str, int]]
) -> dict[str, str]:
    """Return {ps: fingerprint of what the ps holds of a checkpoint}, as `FingerprintOperations.run_ps` does.

    `values` are the values of all variables except tables; `sums` is {ps: {table: sum of the table's rows
    there}}. A ps that holds no variable is left out.
    """
    pairs: list[tuple[tf.Variable, int]] = []
    for variable in variables:
        if (name := name_of(variable)) == COUNTERS:
            continue
        if isinstance(variable, TableVariable):
            totals = [sums[holder_of(piece)][name] for piece in variable.pieces]
        else:
            of_pieces = zip(split_array(variable, values[name]), offsets_of(variable), strict=True)
            totals = [_sum_of(name, value, offset) for value, offset in of_pieces]
        pairs += zip(pieces_of(variable), totals, strict=True)
    return _digests_of_ps(pairs)


def sum_of_rows(
    values: npt.NDArray[np.generic], file: RowFile, positions: npt.NDArray[np.int64] | None = None
) -> int:
    """Return the fingerprint's sum, modulo 2**64, of `values`, which are rows of `file` or of a piece of it.

    The sums of all rows of a table add up to the table's sum. `positions` are the positions of the rows in
    the part; None if the rows are consecutive from position `file.first` on.
    """
    bits = _bits_of(file.table, tf.as_dtype(values.dtype)).as_numpy_dtype
    width = math.prod(values.shape[1:])
    at_once, total = max(1, BLOCK // width), 0
    within = _within_a_block()
    for start in range(0, len(values), at_once):
        block = np.ascontiguousarray(values[start : start + at_once])
        if positions is None:
            some = np.arange(file.first + start, file.first + start + len(block), dtype=np.int64)
        else:
            some = positions[start : start + at_once]
        rows = file.part + file.parts * some
        places = (rows[:, np.newaxis] * width + np.arange(width)).reshape(-1).astype(np.uint64)
        blocks = places >> np.uint64(BLOCK.bit_length() - 1)
        outer = scramble(np.arange(blocks.min(), blocks.max() + np.uint64(1), dtype=np.uint64), np)
        factors = within[places & np.uint64(BLOCK - 1)] * outer[blocks - blocks.min()]
        products = block.reshape(-1).view(bits).astype(np.uint64) * factors
        total += int(np.sum(products, dtype=np.uint64))
    return total % 2**64


def with_computed_sums(checkpoint: Path, tables: Sequence[SavedTable]) -> list[SavedTable]:
    """Return the tables of a checkpoint, each with a `total` that is computed from the files beside it.

    Raises OSError, and ValueError if a file is too short.
    """

    def total(table: SavedTable) -> int:
        chunks = SavedRows(checkpoint, table).chunks()
        return sum(sum_of_rows(values, place) for place, values in chunks) % 2**64

    return [replace(table, total=total(table)) for table in tables]


@cache
def _within_a_block() -> npt.NDArray[np.uint64]:
    """Return the factors of the places in any block, uint64 [BLOCK]: scramble(i) for place i."""
    factors: npt.NDArray[np.uint64] = scramble(np.arange(BLOCK, dtype=np.uint64), np)
    return factors


def sum_before(former: Path, table: SavedTable, later: Path, files: Sequence[RowFile]) -> int:
    """Return the sum, modulo 2**64, that the rows of a delta had in a former checkpoint; 0 without `files`.

    `former` is the path of the former checkpoint, and `later` of the checkpoint with the delta, both without
    a suffix. `files` are the delta's files of one part. Raises OSError.
    """
    total = 0
    for whole in (other for other in table.sha256 if files and other.part == files[0].part):
        before = rows_in(former, table, whole)
        for file in files:
            positions = positions_in(later, table, file)
            begin, end = np.searchsorted(positions, [whole.first, whole.first + whole.rows])
            some = positions[begin:end]
            total += sum_of_rows(before[some - whole.first], file, some)
    return total % 2**64


class FingerprintOperations:
    """The operations that sum each variable on its own ps, so that only 8 bytes of each piece travel.

    `fetches` are the global step before the sums, the global step after them, and the sums of all pieces.
    """

    def __init__(self, variables: Iterable[AnyVariable], counters: tf.Variable) -> None:
        """Add the operations to the default graph; the counters are left out if they are among `variables`.

        Raises ValueError, which names the variable, if a variable does not hold numbers.
        """
        self._variables = [variable for variable in variables if name_of(variable) != COUNTERS]
        self._pieces = [piece for variable in self._variables for piece in pieces_of(variable)]
        with tf.name_scope("fingerprint"):
            before = _global_step(counters)
            with tf.control_dependencies([before]):
                sums = _sums_in_graph(self._variables)
            with tf.control_dependencies(sums):
                self.fetches = [before, _global_step(counters), *sums]
            self._sums = sums

    def run(self, session: tf.compat.v1.Session) -> tuple[str, int] | None:
        """Return (fingerprint, global step); None if the global step changed while the sums were computed.

        Raises tf.errors.OpError.
        """
        before, after, *sums = session.run(self.fetches)
        if before != after:
            return None
        remaining = iter(sums)
        lines = [
            _line(name_of(variable), variable.dtype.base_dtype.name, variable.shape.as_list(), total % 2**64)
            for variable in self._variables
            for total in [sum(int(next(remaining)) for _ in pieces_of(variable))]
        ]
        return _digest(lines), int(after)

    def run_ps(self, session: tf.compat.v1.Session, ps: Collection[str]) -> dict[str, str]:
        """Return {ps: fingerprint of the ps's parameters} for the given ps. Raises tf.errors.OpError.

        A ps that holds no parameters is left out. The sums are read even if a step changes the model
        meanwhile.
        """
        pairs = [pair for pair in zip(self._pieces, self._sums, strict=True) if holder_of(pair[0]) in ps]
        totals = map(int, session.run([total for _, total in pairs]))
        return _digests_of_ps((piece, total) for (piece, _), total in zip(pairs, totals, strict=True))


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def _line(name: str, dtype: str, shape: Sequence[int], total: int) -> str:
    return f"{name} {dtype} [{','.join(str(size) for size in shape)}] {total}"


def _digests_of_ps(sums: Iterable[tuple[tf.Variable, int]]) -> dict[str, str]:
    """Return {ps: fingerprint of the pieces on the ps}; `sums` are pairs (piece of a variable, its sum)."""
    lines: dict[str, list[str]] = {}
    for piece, total in sums:
        line = _line(piece.op.name, piece.dtype.base_dtype.name, piece.shape.as_list(), total)
        lines.setdefault(holder_of(piece), []).append(line)
    return {ps: _digest(own) for ps, own in lines.items()}


def _bits_of(name: str, dtype: tf.DType) -> tf.DType:
    """Return the unsigned integer type for the bits of a type; a number of 16 bytes is read as two uint64.

    Raises ValueError if the type is no type of numbers; bool is one here.
    """
    if not (dtype.is_floating or dtype.is_integer or dtype.is_complex or dtype.is_bool):
        raise ValueError(f"variable {name} holds {dtype.name}: a fingerprint is of numbers only")
    return {1: tf.uint8, 2: tf.uint16, 4: tf.uint32}.get(dtype.size, tf.uint64)


def _sum_of(name: str, value: npt.NDArray[np.generic], offset: int = 0) -> int:
    """Return the sum, modulo 2**64, of `value`, which begins at place `offset` of the whole variable."""
    bits = _bits_of(name, tf.as_dtype(value.dtype)).as_numpy_dtype
    flat = np.ascontiguousarray(value).reshape(-1).view(bits)
    number, first = divmod(offset, BLOCK)
    within = scramble(np.arange(min(BLOCK, first + len(flat)), dtype=np.uint64), np)
    blocks = math.ceil((first + len(flat)) / BLOCK)
    factors = scramble(np.arange(number, number + blocks, dtype=np.uint64), np)
    sums = [
        np.sum(block * within[at : at + len(block)], dtype=np.uint64)
        for start in range(-first, len(flat), BLOCK)
        for block, at in [(flat[max(start, 0) : start + BLOCK].astype(np.uint64), max(-start, 0))]
    ]
    return int(np.sum(np.asarray(sums, np.uint64) * factors, dtype=np.uint64))


def _global_step(counters: tf.Variable) -> tf.Tensor:
    with tf.device(counters.device):
        return counters.read_value()[GLOBAL_STEP]


def _sums_in_graph(variables: Sequence[AnyVariable]) -> list[tf.Tensor]:
    """Return the sum of each piece, uint64, in order, computed on the CPU of the task with the piece."""
    flats = {
        piece.op.name: (_flat(piece), offset)
        for variable in variables
        if not isinstance(variable, TableVariable)
        for piece, offset in zip(pieces_of(variable), offsets_of(variable), strict=True)
    }
    longest: dict[str, int] = {}
    for flat, offset in flats.values():
        end = offset % BLOCK + flat.shape.num_elements()
        longest[flat.device] = max(longest.get(flat.device, 0), end)
    within = {}
    for place, size in longest.items():
        with tf.device(place):
            places = tf.range(min(size, BLOCK), dtype=tf.int64)
            within[place] = scramble(tf.bitcast(places, tf.uint64), tf.bitwise)
    sums = []
    for variable in variables:
        if isinstance(variable, TableVariable):
            sums += [_sum_of_part(variable, number) for number in range(len(variable.pieces))]
        else:
            own = [flats[piece.op.name] for piece in pieces_of(variable)]
            sums += [_sum_of_flat(flat, offset, within[flat.device]) for flat, offset in own]
    return sums


def _sum_of_part(table: TableVariable, number: int) -> tf.Tensor:
    """Return the sum of part `number` of a table.

    Only some rows are read at once, because a read copies them.
    """
    part = table.pieces[number]
    width, rows = part.shape[1:].num_elements(), part.shape[0]
    at_once = max(1, BLOCK // width)

    def add(start: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        some = tf.range(start, tf.minimum(start + at_once, rows))
        values = tf.raw_ops.ResourceGather(resource=part.handle, indices=some, dtype=part.dtype.base_dtype)
        first = (some * len(table.pieces) + number) * width
        places = tf.bitcast(tf.reshape(first[:, tf.newaxis] + np.arange(width), [-1]), tf.uint64)
        inner = scramble(tf.bitwise.bitwise_and(places, np.uint64(BLOCK - 1)), tf.bitwise)
        outer = scramble(tf.bitwise.right_shift(places, np.uint64(BLOCK.bit_length() - 1)), tf.bitwise)
        bits = tf.cast(_bits_in_a_row(part.op.name, values), tf.uint64)
        return start + at_once, total + tf.reduce_sum(bits * inner * outer)

    with tf.device(part.device):
        begin = [tf.constant(0, tf.int64), tf.constant(0, tf.uint64)]
        _, total = v1.while_loop(lambda start, _: start < rows, add, begin, parallel_iterations=1)
        return total


def _flat(variable: tf.Variable) -> tf.Tensor:
    """Return the bits of a variable, [numbers], on the CPU of its task even if the variable is on a GPU."""
    with tf.device(variable.device):
        value = variable.read_value()
    place = tf.DeviceSpec.from_string(variable.device).replace(device_type="CPU", device_index=0)
    with tf.device(place.to_string()):
        return _bits_in_a_row(variable.op.name, value)


def _bits_in_a_row(name: str, value: tf.Tensor) -> tf.Tensor:
    bits = _bits_of(name, value.dtype)
    value = tf.cast(value, bits) if value.dtype == tf.bool else tf.bitcast(value, bits)
    return tf.reshape(value, [-1])


def _sum_of_flat(flat: tf.Tensor, offset: int, within: tf.Tensor) -> tf.Tensor:
    """Return the sum of `flat`, which begins at place `offset` of the whole variable, block by block.

    `within` has the factors of the places in a block, as many as `flat` needs.
    """
    size = flat.shape.num_elements()

    def add(start: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first = (offset + start) % BLOCK
        block = tf.cast(flat[start : start + BLOCK - first], tf.uint64)
        factor = scramble(tf.bitcast((offset + start) // BLOCK, tf.uint64), tf.bitwise)
        stop = start + tf.size(block, tf.int64)
        return stop, total + tf.reduce_sum(block * within[first : first + stop - start]) * factor

    with tf.device(flat.device):
        number, first = divmod(offset, BLOCK)
        if first + size <= BLOCK:
            # Most variables fit into one block. Building and starting a loop costs more than all their sums.
            factor = scramble(np.asarray([number], np.uint64), np)[0]
            return tf.reduce_sum(tf.cast(flat, tf.uint64) * within[first : first + size]) * factor
        begin = [tf.constant(0, tf.int64), tf.constant(0, tf.uint64)]
        _, total = v1.while_loop(lambda start, _: start < size, add, begin, parallel_iterations=1)
        return total
