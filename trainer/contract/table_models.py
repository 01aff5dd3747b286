"""The memory that a model with tables takes on each ps, computed without TensorFlow."""

import math
from collections.abc import Mapping
from typing import Any

from trainer.contract.model_card import OF_DATA, OF_SETTING, Card
from trainer.host.wording import grouped

# The optimizers that change only the rows of a batch -> how many numbers they keep for each number of the
# model (their slots).
ROW_OPTIMIZERS: Mapping[str, int] = {"adagrad": 1, "sgd": 0, "adam": 2, "ftrl": 2}
# With lazy Adam, the step that last needed a row.
_BYTES_OF_ADAMS_ROW = 8
_BYTES_OF_NUMBER = 4
# The memory of a ps may be so many times what its variables have.
BYTES_TO_SPARE = 1.15

# Of Criteo's Kaggle data, the different values of each category.
_CRITEO_ROWS = (
    *(1396, 553, 2594031, 698469, 290, 23, 12048, 608, 3, 65156, 5309, 2186509, 3128),
    *(26, 12750, 1537323, 10, 5002, 2118, 4, 1902327, 17, 15, 135790, 94, 84305),
)
_ROWS_KEPT = 1000  # a feature keeps so many of its rows, where Criteo's are scaled down
FEWEST_ROWS = sum(min(rows, _ROWS_KEPT) for rows in _CRITEO_ROWS)


def rows_of(total: int) -> tuple[int, ...]:
    """Return the number of rows for each of the 26 categories of clicks, in proportion to Criteo's.

    The sum is about `total`. A category keeps at least 1000 rows, or all its rows if Criteo has fewer.
    """
    criteo = sum(_CRITEO_ROWS)
    return tuple(max(min(rows, _ROWS_KEPT), rows * total // criteo) for rows in _CRITEO_ROWS)


def ps_bytes(card: Card, settings: Mapping[str, Any], ps_count: int) -> list[int]:
    """Return the most bytes of memory that a model takes on each ps: [bytes of ps 0, bytes of ps 1, ..].

    Return [] if that is unknown: the model does not need tables, or its data decide their sizes. `settings`
    are the training settings as {name: value}, `ps_count` is the number of ps.
    """
    tables = card.tables.values() if card.needs_tables else ()
    if not tables or any(table["rows"] == OF_DATA for table in tables):
        return []
    optimizer = str(settings["optimizer"] or next(iter(card.learning_rates)))
    number_bytes = _BYTES_OF_NUMBER * (1 + ROW_OPTIMIZERS[optimizer])
    dense_bytes = number_bytes * sum(units * (inputs + 1) for inputs, units in card.layers.values())
    sizes = [dense_bytes / ps_count] * ps_count
    # Tables of one width lie behind one another.
    for width, counts in grouped((table["width"], table["rows"]) for table in tables).items():
        rows = sum(
            sum(rows_of(int(settings["table_rows"]))) if count == OF_SETTING else count for count in counts
        )
        row_bytes = width * number_bytes + (_BYTES_OF_ADAMS_ROW if optimizer == "adam" else 0)
        sizes = [size + len(range(ps, rows, ps_count)) * row_bytes for ps, size in enumerate(sizes)]
    return [math.ceil(BYTES_TO_SPARE * size) for size in sizes]
