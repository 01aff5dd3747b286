"""What each ps will hold of a model with tables, for those who have no TensorFlow."""

import math
from collections.abc import Mapping
from typing import Any

from trainer.contract.model_card import OF_DATA, OF_SETTING, Card
from trainer.host.wording import grouped

# The optimizers that change the rows of a batch alone, each with its slots: how many numbers it keeps for
# each number of the model.
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
    """Return the rows of the 26 features of clicks: about `total`, in proportion to Criteo's."""
    criteo = sum(_CRITEO_ROWS)
    return tuple(max(min(rows, _ROWS_KEPT), rows * total // criteo) for rows in _CRITEO_ROWS)


def held_bytes(card: Card, settings: Mapping[str, Any], ps: int) -> list[int]:
    """Return the bytes that each of so many ps will hold at most of a model, with these settings of a run.

    The list is empty if that is not known: the model need not have tables, or its data decide their sizes.
    """
    tables = card.tables.values() if card.needs_tables else ()
    if not tables or any(table["rows"] == OF_DATA for table in tables):
        return []
    optimizer = str(settings["optimizer"] or next(iter(card.learning_rates)))
    of_number = _BYTES_OF_NUMBER * (1 + ROW_OPTIMIZERS[optimizer])
    dense = of_number * sum(units * (inputs + 1) for inputs, units in card.layers.values())
    held = [dense / ps] * ps
    # Tables of one width lie behind one another.
    for width, its in grouped((table["width"], table["rows"]) for table in tables).items():
        rows = sum(sum(rows_of(int(settings["table_rows"]))) if of == OF_SETTING else of for of in its)
        of_row = width * of_number + (_BYTES_OF_ADAMS_ROW if optimizer == "adam" else 0)
        held = [bytes_ + len(range(number, rows, ps)) * of_row for number, bytes_ in enumerate(held)]
    return [math.ceil(BYTES_TO_SPARE * bytes_) for bytes_ in held]
