"""The embedding tables of some workloads: which rows a batch needs, and examples that look up rows.

An example has 13 numbers, which carry no information, and an id for each of 26 tables. Its label is 1 with a
probability whose logit is a sum of weights of its ids.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

NUMBERS, COUNT, WIDTH = 13, 26, 16
EXAMPLES, TESTED = 200_000, 1_000
FILE = "examples.npz"
_LARGEST_NUMBER, _DEVIATION, _MEAN = 10, 1.4, -1.3
_FLOAT = _POSITION = 4


@dataclass(frozen=True)
class Tables:
    """26 tables of `rows` rows, each of 16 numbers, and which ids are looked up.

    In each table, `drawn` of its rows, chosen at random, are ids. How often an id is needed follows Zipf's
    law with this `exponent`: the id with rank 1 is needed most.
    """

    rows: int
    drawn: int
    exponent: float

    @property
    def bytes_of_rows(self) -> int:
        """The bytes of all rows of all tables, and of the same size again for the slots of Adagrad."""
        return 2 * COUNT * self.rows * WIDTH * _FLOAT

    def bytes_of_a_batch(self, examples: int) -> float:
        """Return the bytes that a batch of `examples` examples moves for all tables, on average.

        These are its rows, their gradients and their positions. A row that several examples need counts once.
        """
        return COUNT * self.different_ids(examples) * (2 * WIDTH * _FLOAT + _POSITION)

    def different_ids(self, examples: int) -> float:
        """Return the mean number of different ids of one table in a batch of `examples` examples."""
        return float((1 - (1 - self._shares()) ** examples).sum())

    def write(self, folder: Path) -> None:
        """Write examples into the new file `folder`/FILE, the same in every run.

        The file has `features`, `labels`, and `rows`, the number of rows of each table.
        """
        generator = np.random.default_rng(20_261)
        count = EXAMPLES + TESTED
        features = np.empty((count, NUMBERS + COUNT), np.int32)
        features[:, :NUMBERS] = generator.integers(_LARGEST_NUMBER, size=(count, NUMBERS))
        logits, borders = np.full(count, _MEAN), np.cumsum(self._shares())
        for table in range(COUNT):
            # The last border may be rounded to less than 1.
            ranks = np.searchsorted(borders[:-1], generator.random(count))
            logits += generator.normal(scale=_DEVIATION / COUNT**0.5, size=self.drawn)[ranks]
            rows = np.random.default_rng(table).permutation(self.rows)[: self.drawn]
            features[:, NUMBERS + table] = rows[ranks]
        labels = (generator.random(count) < 1 / (1 + np.exp(-logits))).astype(np.float32)
        np.savez(folder / FILE, features=features, labels=labels, rows=np.array(self.rows))

    def _shares(self) -> npt.NDArray[np.float64]:
        """Return the probability of each id, by rank: float64 [drawn], with the sum 1."""
        shares = np.arange(1, self.drawn + 1) ** -self.exponent
        whole: npt.NDArray[np.float64] = shares / shares.sum()
        return whole
