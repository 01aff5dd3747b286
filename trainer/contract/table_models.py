"""The models with tables and what each ps will hold of them, for those who have no TensorFlow."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The optimizers that change the rows of a batch alone, each with its slots: how many numbers it keeps for
# each number of the model. The first is the default.
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


@dataclass(frozen=True)
class TableModel:
    """A model of clicks: tables of these `widths`, each with a row for each id, and dense `layers`.

    A layer has its inputs and its units.
    """

    widths: tuple[int, ...]
    layers: Mapping[str, tuple[int, int]]


# 13 logarithms of numbers, and as many that say which numbers are negative.
_NUMBERS = 26
TABLE_MODELS: Mapping[str, TableModel] = {
    "wide_deep": TableModel(
        widths=(1, 16),
        layers={"first": (_NUMBERS + 26 * 16, 256), "second": (256, 128), "output": (128, 1)},
    ),
    # The products of 27 vectors, in pairs, and one of the vectors.
    "dlrm": TableModel(
        widths=(16,),
        layers={
            **{"bottom_first": (_NUMBERS, 64), "bottom_second": (64, 16)},
            **{"first": (27 * 26 // 2 + 16, 256), "second": (256, 128), "output": (128, 1)},
        },
    ),
}


def rows_of(total: int) -> tuple[int, ...]:
    """Return the rows of the 26 features of clicks: about `total`, in proportion to Criteo's."""
    criteo = sum(_CRITEO_ROWS)
    return tuple(max(min(rows, _ROWS_KEPT), rows * total // criteo) for rows in _CRITEO_ROWS)


def held_bytes(settings: Mapping[str, Any], ps: int) -> list[int]:
    """Return the bytes that each of so many ps will hold at most, with these settings of a run.

    There are none if the model has no tables: its sizes may depend on its data.
    """
    model = TABLE_MODELS.get(str(settings["model"]))
    if model is None:
        return []
    optimizer = str(settings["optimizer"] or next(iter(ROW_OPTIMIZERS)))
    of_number = _BYTES_OF_NUMBER * (1 + ROW_OPTIMIZERS[optimizer])
    of_row = sum(width * of_number for width in model.widths)
    if optimizer == "adam":
        of_row += _BYTES_OF_ADAMS_ROW * len(model.widths)
    dense = of_number * sum(units * (inputs + 1) for inputs, units in model.layers.values())
    rows = sum(rows_of(int(settings["table_rows"])))
    return [
        math.ceil(BYTES_TO_SPARE * (len(range(number, rows, ps)) * of_row + dense / ps))
        for number in range(ps)
    ]
