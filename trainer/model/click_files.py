"""Criteo's files of clicks: reading them for training and evaluation, and writing generated clicks like them.

python -m trainer.model.click_files FOLDER [--train N] [--test N] [--rows N] [--seed N]

trainer/contract/data_files.py says what a line is. A value of a feature gets row 1 + (h mod 2^62) mod (the
feature's rows - 1), where h is the Fingerprint64 of FarmHash of the value's eight digits. Row 0 is for
missing values.
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
    describe_click,
    is_compressed,
    require_few_damaged,
)
from trainer.contract.exit_codes import CONFIGURATION, INPUT
from trainer.contract.settings import GENERATED_WHERE_THE_GRAPH_IS, TrainingSettings
from trainer.contract.table_models import rows_of
from trainer.coordination.bounded_calls import runtime_config
from trainer.model.click_truth import MISSING_ID, MISSING_NUMBER, Truth
from trainer.model.clicks import generate_clicks
from trainer.model.data import AS_IT_IS, Data, Dataset, Examples
from trainer.process.console import say
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1

# All tasks must make the same clicks, so this does not depend on the run's seed.
DATA_SEED = 1
# How many lines are held to draw the next line from, in each epoch; how many lines are parsed together.
_SHUFFLED, _PARSED = 2**14, 1024
# An odd factor modulo 2^32 gives each id of a feature a different value; the second number makes the values
# of features differ.
_ODD, _APART = 0x9E3779B1, 0x85EBCA6B


@dataclass(frozen=True)
class CheckedFile:
    """A file of clicks whose lines were checked.

    `lines` is the number of all lines; `damaged` are the indices, from 0, of the damaged lines.
    """

    path: Path
    is_compressed: bool
    lines: int
    damaged: npt.NDArray[np.int64]


class ClickFiles:
    """The good lines of files as examples, with the features and labels of `Clicks`.

    With `parts` above 1, these are only lines `index`, `index + parts`, and so on, counted over all files.
    """

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
        # The lines after the lines that were read last, and the number of the first of these lines.
        self._lines: Iterator[bytes] = iter(())
        self._next = -1

    def __len__(self) -> int:
        """Return the number of examples of this part, without damaged lines."""
        return self._count

    def read(self, first: int, count: int) -> Examples:
        """Return `count` examples from number `first` on, as Source.read does.

        This is fast if they follow the examples that were read last; else the files are read from the
        beginning. Raises TaskFailure (`input`) if the number of lines of a file has changed.
        """
        first %= len(self)
        if first != self._next:
            self._lines = islice(self._good_lines(), first, None)
        lines = list(islice(self._lines, count))
        self._next = (first + count) % len(self)
        return self._parser.examples(lines)

    def part(self, index: int, parts: int) -> "ClickFiles":
        """Return lines `index`, `index + parts`, and so on, of these lines; damaged lines count, too."""
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
        skip: int | tf.Tensor = 0,  # noqa: ARG002 - to read over so many lines may take hours
    ) -> Dataset:
        """Return (an endless dataset of batches (features, labels), {}), which is read without Python.

        Each worker reads all files, from the first line on, and keeps its own lines, as `part` does; `skip`
        has no effect. Lines are shuffled among the next 16,384 lines.
        """
        own = self.part(index, workers)
        kinds = ["GZIP" if file.is_compressed else "" for file in self._files]
        files = tf.data.Dataset.from_tensor_slices(([str(file.path) for file in self._files], kinds))
        lines = files.flat_map(AS_IT_IS(tf.data.TextLineDataset)).shard(own._parts, own._index)
        endless = lines.shuffle(_SHUFFLED, seed, reshuffle_each_iteration=True).repeat()
        parsed = endless.batch(_PARSED).map(AS_IT_IS(self._parser.parse))
        return parsed.rebatch(batch_size), {}

    def _good_lines(self) -> Iterator[bytes]:
        """Yield the good lines of this part in order, and again from the first line, without end.

        Raises TaskFailure (`input`) if the number of lines of a file has changed.
        """
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
    """Parses lines of clicks; `rows` are the numbers of table rows for the 26 features with ids.

    `threads` is the number of threads; None lets TensorFlow choose.
    """

    def __init__(self, rows: Sequence[int], threads: int | None = None) -> None:
        self._rows = np.array(rows, np.int64)
        with tf.Graph().as_default() as graph:
            lines = v1.placeholder(tf.string, [None])
            good, parsed = tf.strings.regex_full_match(lines, CLICK_LINE), self.parse(lines)
        config = runtime_config(threads)
        config.device_count["GPU"] = 0
        session = v1.Session(graph=graph, config=config)
        self._good, self._parsed = (session.make_callable(fetched, [lines]) for fetched in (good, parsed))

    def are_good(self, lines: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """Return bool [lines]: True for each line that is not damaged."""
        good: npt.NDArray[np.bool_] = self._good(np.array(lines, object))
        return good

    def examples(self, lines: Sequence[bytes]) -> Examples:
        """Return the examples in `lines`, without damaged lines."""
        return Examples(*self._parsed(np.array(lines, object)))

    def parse(self, lines: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return (features int64 [n, 39], labels float32 [n]) of the n lines that are not damaged."""
        good = tf.boolean_mask(lines, tf.strings.regex_full_match(lines, CLICK_LINE))
        columns = tf.reshape(tf.strings.split(good, "\t").values, [-1, COLUMNS])
        labels, numbers, values = tf.split(columns, [1, NUMBERS, CATEGORIES], axis=1)
        filled = tf.where(tf.equal(numbers, ""), str(MISSING_NUMBER), numbers)
        hashes = tf.strings.to_hash_bucket_fast(values, 2**62)
        ids = tf.where(tf.equal(values, ""), np.int64(MISSING_ID), 1 + hashes % (self._rows - 1))
        features = tf.concat([tf.strings.to_number(filled, tf.int64), ids], axis=1)
        return features, tf.strings.to_number(labels[:, 0], tf.float32)


def load(settings: TrainingSettings, rows: Sequence[int], train: int, test: int) -> Data:
    """Return the clicks in the folder `settings.data_dir`; if that is "", return generated clicks.

    `rows` are the numbers of table rows for the 26 features with ids. `train` and `test` are the numbers of
    clicks to generate. Raises TaskFailure: `input` as `clicks_in` does; `configuration` if clicks would have
    to be generated for in-graph replication or existing servers.
    """
    if settings.data_dir:
        return clicks_in(Path(settings.data_dir), rows, settings.threads)
    if settings.existing_servers or settings.replication == "in_graph":
        expected = "expected a trainer_data_dir (--data_dir) with files of clicks"
        why = f"trainer_data_dir is empty: {GENERATED_WHERE_THE_GRAPH_IS}"
        raise TaskFailure(CONFIGURATION, f"{why}; {expected}")
    return generate_clicks(Truth(rows, DATA_SEED), train, test)


def clicks_in(folder: Path, rows: Sequence[int], threads: int | None = None) -> Data:
    """Return the examples in the files of a folder: train* to train on, test* to test with.

    All files are read once, to count and check their lines. `rows` and `threads` are as in `Parser`. Raises
    TaskFailure (`input`) if files are missing, have no lines, or have more than 0.1% damaged lines.
    """
    parser = Parser(rows, threads)
    train, test = (ClickFiles(_check_files(folder, part, parser), parser) for part in ("train", "test"))
    return Data(train, test)


def _check_files(folder: Path, part: str, parser: Parser) -> Sequence[CheckedFile]:
    """Return the checked files of a part ("train" or "test"); print how many lines are damaged, if any.

    Raises TaskFailure (`input`) as `clicks_in` does.
    """
    examples: list[str] = []
    where = f"{folder}/{part}*"
    try:
        files = [_check(path, parser, examples) for path in click_paths(folder, part)]
        lines, damaged = sum(file.lines for file in files), sum(len(file.damaged) for file in files)
        require_few_damaged(where, lines, damaged, examples)
    except ValueError as error:
        raise TaskFailure(INPUT, str(error)) from error
    if damaged:
        first = "; ".join(examples)
        say(f"{damaged} of {lines} lines in {where} are damaged and left out. The first: {first}")
    return files


def _check(path: Path, parser: Parser, examples: list[str]) -> CheckedFile:
    """Return the checked file; append descriptions of damaged lines to `examples` until that has three."""
    damaged: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    number = 0
    for lines in click_lines(path):
        bad = np.flatnonzero(~parser.are_good(lines))
        shown = bad[: MOST_NAMED - len(examples)].tolist()
        examples += [describe_click(path, number + place, lines[place]) for place in shown]
        damaged.append(bad + number)
        number += len(lines)
    return CheckedFile(path, is_compressed(path), number, np.concatenate(damaged))


def lines_of(examples: Examples) -> Iterator[str]:
    """Yield a line in Criteo's format, without its line break, for each example.

    An id becomes eight hexadecimal digits that no other id of the same feature has. A missing number or id
    becomes "".
    """
    numbers, ids = np.split(examples.features, [NUMBERS], axis=1)
    values = (ids * _ODD + np.arange(CATEGORIES) * _APART) & 0xFFFFFFFF
    rows = zip(examples.labels.tolist(), numbers.tolist(), ids.tolist(), values.tolist(), strict=True)
    for label, own_numbers, own_ids, own_values in rows:
        columns = ["" if number == MISSING_NUMBER else str(number) for number in own_numbers]
        pairs = zip(own_ids, own_values, strict=True)
        columns += ["" if own == MISSING_ID else f"{value:08x}" for own, value in pairs]
        yield "\t".join([f"{label:.0f}", *columns])


def main(arguments: Sequence[str] | None = None) -> int:
    """Write generated clicks to train.tsv and test.tsv in a folder; return 0."""
    parser = argparse.ArgumentParser(prog="python -m trainer.model.click_files", description=main.__doc__)
    parser.add_argument("folder", type=Path)
    for name, default in (("train", 1_000_000), ("test", 100_000), ("rows", 1_000_000), ("seed", DATA_SEED)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    data = generate_clicks(Truth(rows_of(options.rows), options.seed), options.train, options.test)
    options.folder.mkdir(parents=True, exist_ok=True)
    for part, source in (("train", data.train), ("test", data.test)):
        with (options.folder / f"{part}.tsv").open("w", encoding="ascii", newline="\n") as file:
            for first in range(0, len(source), _PARSED):
                examples = source.read(first, min(_PARSED, len(source) - first))
                file.writelines(f"{line}\n" for line in lines_of(examples))
    return 0


if __name__ == "__main__":
    sys.exit(main())
