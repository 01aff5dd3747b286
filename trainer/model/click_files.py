"""Criteo's files of clicks: reading them for training and evaluation, and writing generated clicks like them.

    python -m trainer.model.click_files FOLDER [--train N] [--test N] [--rows N] [--seed N]

trainer/contract/data_files.py says what a line is. The row of a value is 1 + (h mod 2^62) mod (its feature's
rows - 1), where h is the Fingerprint64 of FarmHash for its eight digits; row 0 is for missing values.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.contract.data_files import (
    CATEGORIES,
    CLICK_LINE,
    COLUMNS,
    MOST_NAMED,
    NUMBERS,
    click_lines,
    click_paths,
    described_click,
    is_compressed,
    require_few_damaged,
)
from trainer.contract.exit_codes import CONFIGURATION, INPUT
from trainer.contract.settings import GENERATED_WHERE_THE_GRAPH_IS, TrainingSettings
from trainer.contract.table_models import rows_of
from trainer.coordination.bounded_calls import runtime_config
from trainer.model.click_truth import MISSING_ID, MISSING_NUMBER, Truth
from trainer.model.clicks import generated
from trainer.model.data import AS_IT_IS, Data, Dataset, Examples
from trainer.process.console import say
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1

# All tasks must make the same clicks, so this does not depend on the run's seed.
DATA_SEED = 1
# Lines that are kept to draw the next one from, in each epoch; and that are parsed together.
_SHUFFLED, _PARSED = 2**14, 1024
# An odd factor modulo 2^32 gives each id a value of its own; and features should differ in their values.
_ODD, _APART = 0x9E3779B1, 0x85EBCA6B


@dataclass(frozen=True)
class CheckedFile:
    """A file: whether it is compressed, its number of lines, and the numbers of its damaged lines, from 0."""

    path: Path
    is_compressed: bool
    lines: int
    damaged: npt.NDArray[np.int64]


class ClickFiles:
    """The examples in files, as `Clicks` has them: of all lines, or of every n-th, for so many `parts`."""

    def __init__(
        self, files: Sequence[CheckedFile], parser: "Parser", parts: int = 1, index: int = 0
    ) -> None:
        self._files, self._parser, self._parts, self._index = files, parser, parts, index
        starts = np.cumsum([0, *(file.lines for file in files)])
        damaged = np.concatenate(
            [file.damaged + start for file, start in zip(files, starts[:-1], strict=True)]
        )
        self._damaged = frozenset(damaged[damaged % parts == index].tolist())
        self._count = len(range(index, int(starts[-1]), parts)) - len(self._damaged)
        # The lines that follow the last ones which were read, and the number of the first of them.
        self._lines: Iterator[bytes] = iter(())
        self._next = -1

    def __len__(self) -> int:
        """Return the number of examples, without the damaged lines."""
        return self._count

    def read(self, first: int, count: int) -> Examples:
        """Return so many examples from number `first` on, as Source.read does.

        It costs no more than these if they follow the examples that were read before; else all files are read
        from the beginning.
        """
        first %= len(self)
        if first != self._next:
            self._lines = islice(self._good_lines(), first, None)
        lines = list(islice(self._lines, count))
        self._next = (first + count) % len(self)
        return self._parser.examples(lines)

    def part(self, index: int, parts: int) -> "ClickFiles":
        """Return the part with every n-th line, for n parts, damaged lines included."""
        if parts == 1:
            return self
        place = self._index + self._parts * index
        return ClickFiles(self._files, self._parser, self._parts * parts, place)

    def dataset(
        self,
        batch_size: int | tf.Tensor,
        seed: int,
        workers: int,
        index: int,
        had: int | tf.Tensor = 0,  # noqa: ARG002 - to read over so many lines may take hours
    ) -> Dataset:
        """Return endless batches, which TensorFlow reads and parses without Python.

        Each worker reads all files, from the first line on, and keeps its lines. They are shuffled among the
        next ones.
        """
        own = self.part(index, workers)
        kinds = ["GZIP" if file.is_compressed else "" for file in self._files]
        files = tf.data.Dataset.from_tensor_slices(([str(file.path) for file in self._files], kinds))
        lines = files.flat_map(AS_IT_IS(tf.data.TextLineDataset)).shard(own._parts, own._index)
        endless = lines.shuffle(_SHUFFLED, seed, reshuffle_each_iteration=True).repeat()
        parsed = endless.batch(_PARSED).map(AS_IT_IS(self._parser.parse))
        return parsed.rebatch(batch_size), {}

    def _good_lines(self) -> Iterator[bytes]:
        """Yield the lines that are not damaged, for ever. Raises TaskFailure if the files have changed."""
        while True:
            number = 0
            for file in self._files:
                end = number + file.lines
                for line in chain.from_iterable(click_lines(file.path)):
                    if number % self._parts == self._index and number not in self._damaged:
                        yield line
                    number += 1
                if number != end:
                    now = number - end + file.lines
                    raise TaskFailure(INPUT, f"{file.path} had {file.lines} lines, and has {now} now")


class Parser:
    """Parses lines, with the rows of each feature."""

    def __init__(self, rows: Sequence[int], threads: int | None = None) -> None:
        self._rows = np.array(rows, np.int64)
        with tf.Graph().as_default() as graph:
            lines = v1.placeholder(tf.string, [None])
            good, parsed = tf.strings.regex_full_match(lines, CLICK_LINE), self.parse(lines)
        config = runtime_config(threads)
        config.device_count["GPU"] = 0
        session = v1.Session(graph=graph, config=config)
        self._good, self._parsed = (session.make_callable(found, [lines]) for found in (good, parsed))

    def are_good(self, lines: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """Return for each line whether it is not damaged."""
        found: npt.NDArray[np.bool_] = self._good(np.array(lines, object))
        return found

    def examples(self, lines: Sequence[bytes]) -> Examples:
        """Return the examples in these lines, without those in damaged lines."""
        return Examples(*self._parsed(np.array(lines, object)))

    def parse(self, lines: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return features and labels of the lines that are not damaged."""
        good = tf.boolean_mask(lines, tf.strings.regex_full_match(lines, CLICK_LINE))
        columns = tf.reshape(tf.strings.split(good, "\t").values, [-1, COLUMNS])
        labels, numbers, values = tf.split(columns, [1, NUMBERS, CATEGORIES], axis=1)
        given = tf.where(tf.equal(numbers, ""), str(MISSING_NUMBER), numbers)
        hashes = tf.strings.to_hash_bucket_fast(values, 2**62)
        ids = tf.where(tf.equal(values, ""), np.int64(MISSING_ID), 1 + hashes % (self._rows - 1))
        features = tf.concat([tf.strings.to_number(given, tf.int64), ids], axis=1)
        return features, tf.strings.to_number(labels[:, 0], tf.float32)


def load(settings: TrainingSettings, rows: Sequence[int], train: int, test: int) -> Data:
    """Return the clicks in the folder of the settings, or so many generated ones if they name none.

    Raises TaskFailure: `input` for the files, `configuration` if no clicks can be generated.
    """
    if settings.data_dir:
        return clicks_in(Path(settings.data_dir), rows, settings.threads)
    if settings.existing_servers or settings.replication == "in_graph":
        expected = "expected a trainer_data_dir (--data_dir) with files of clicks"
        why = f"trainer_data_dir is empty: {GENERATED_WHERE_THE_GRAPH_IS}"
        raise TaskFailure(CONFIGURATION, f"{why}; {expected}")
    return generated(Truth(rows, DATA_SEED), train, test)


def clicks_in(folder: Path, rows: Sequence[int], threads: int | None = None) -> Data:
    """Return the examples in a folder's files: train* to train on, test* to test with.

    All files are read once, to count and check their lines. Raises TaskFailure (`input`).
    """
    parser = Parser(rows, threads)
    train, test = (ClickFiles(_checked(folder, part, parser), parser) for part in ("train", "test"))
    return Data(train, test)


def _checked(folder: Path, part: str, parser: Parser) -> Sequence[CheckedFile]:
    """Return a part's files; print how many lines are damaged. Raises TaskFailure (`input`)."""
    named: list[str] = []
    where = f"{folder}/{part}*"
    try:
        files = [_check(path, parser, named) for path in click_paths(folder, part)]
        lines, damaged = sum(file.lines for file in files), sum(len(file.damaged) for file in files)
        require_few_damaged(where, lines, damaged, named)
    except ValueError as error:
        raise TaskFailure(INPUT, str(error)) from error
    if damaged:
        say(f"{damaged} of {lines} lines in {where} are damaged and left out. The first: {'; '.join(named)}")
    return files


def _check(path: Path, parser: Parser, named: list[str]) -> CheckedFile:
    """Return the file, and add its first damaged lines to those that are `named`."""
    damaged: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    number = 0
    for lines in click_lines(path):
        bad = np.flatnonzero(~parser.are_good(lines))
        to_name = bad[: MOST_NAMED - len(named)].tolist()
        named += [described_click(path, number + place, lines[place]) for place in to_name]
        damaged.append(bad + number)
        number += len(lines)
    return CheckedFile(path, is_compressed(path), number, np.concatenate(damaged))


def lines_of(examples: Examples) -> Iterator[str]:
    """Yield the lines of examples. An id becomes a value that no other id of its feature has."""
    numbers, ids = np.split(examples.features, [NUMBERS], axis=1)
    values = (ids * _ODD + np.arange(CATEGORIES) * _APART) & 0xFFFFFFFF
    rows = zip(examples.labels.tolist(), numbers.tolist(), ids.tolist(), values.tolist(), strict=True)
    for label, own, of, shown in rows:
        given = ["" if number == MISSING_NUMBER else str(number) for number in own]
        hashed = ["" if each == MISSING_ID else f"{value:08x}" for each, value in zip(of, shown, strict=True)]
        yield "\t".join([f"{label:.0f}", *given, *hashed])


def main(arguments: Sequence[str] | None = None) -> int:
    """Write generated clicks to train.tsv and test.tsv in a folder."""
    parser = argparse.ArgumentParser(prog="python -m trainer.model.click_files", description=main.__doc__)
    parser.add_argument("folder", type=Path)
    for name, default in (("train", 1_000_000), ("test", 100_000), ("rows", 1_000_000), ("seed", DATA_SEED)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    data = generated(Truth(rows_of(options.rows), options.seed), options.train, options.test)
    options.folder.mkdir(parents=True, exist_ok=True)
    for part, source in (("train", data.train), ("test", data.test)):
        with (options.folder / f"{part}.tsv").open("w", encoding="ascii", newline="\n") as file:
            for first in range(0, len(source), _PARSED):
                examples = source.read(first, min(_PARSED, len(source) - first))
                file.writelines(f"{line}\n" for line in lines_of(examples))
    return 0


if __name__ == "__main__":
    sys.exit(main())
