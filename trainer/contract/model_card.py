"""What the card of a model says: all that is known of the model without TensorFlow."""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any

from trainer.contract.json_objects import JsonObject
from trainer.contract.json_values import TEXT, tuple_of
from trainer.contract.rules import (
    BOOLEAN,
    Rule,
    choice,
    close_names,
    converted,
    integer,
    number,
    or_null,
    setting,
    to_number,
)

OPTIMIZERS = ("sgd", "momentum", "adagrad", "adam", "ftrl")
HIGHER, LOWER, NEITHER = "higher", "lower", "neither"
IMAGES, CLICKS = "images", "clicks"
# What a table has as its number of rows: the value of trainer_table_rows, or what the data decide.
OF_SETTING, OF_DATA = "table_rows", "data"


def _mapping(expected: str, rule_of: Callable[[str], Rule]) -> Rule:
    """Return the rule for a mapping with any texts as names; a value must fit the rule `rule_of(name)`.

    `expected` says what the mapping is, for errors.
    """

    def convert(value: object) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise ValueError(value)
        return converted(value, {name: rule_of(name) for name in value}, prefix=".")

    return Rule(expected, convert)


def _object(
    what: str, has: str, rules: Mapping[str, Rule], fits: Callable[[Mapping[str, Any]], object]
) -> Rule:
    """Return the rule for a mapping that has only keys of `rules`, and for which `fits(values)` is true.

    `rules` is {key: rule of the value}. For errors, `what` names the mapping, such as "a table", and `has`
    says which keys it must have, such as "width and rows".
    """

    def convert(value: object) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(value)
        values = converted(value, rules, close_names(f"a key of {what}", rules), ".")
        if not fits(values):
            raise ValueError(value)
        return values

    return Rule(f"{what}: a mapping with {has}", convert)


def _to_shape(value: object) -> tuple[int, int]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(value)
    inputs, units = (_SIZE.convert(size) for size in value)
    return inputs, units  # type: ignore[return-value]


def _to_rates(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError(value)
    rules = dict.fromkeys(OPTIMIZERS, number(0, exclusive=True))
    return converted(value, rules, close_names("an optimizer", OPTIMIZERS), ".")


def _to_rows(value: object) -> int | str:
    return value if isinstance(value, str) and value in {OF_SETTING, OF_DATA} else _SIZE.convert(value)  # type: ignore[return-value]


def _is_a_range(goal: Mapping[str, Any]) -> bool:
    """Return whether the keys of a goal make a range.

    True for a minimum, a maximum or both (the minimum not above the maximum), and for a target with a
    tolerance but without `level`, minimum and maximum. False for all else.
    """
    has = goal.keys() & {"minimum", "maximum"}
    around = goal.keys() & {"target", "tolerance"}
    if around:
        return len(around) == 2 and not has and "level" not in goal
    return bool(has) and goal.get("minimum", -math.inf) <= goal.get("maximum", math.inf)


_SIZE, _REAL = integer(1), Rule("a number", to_number)
_GOAL_KEYS = {
    **dict.fromkeys(("minimum", "maximum", "target"), _REAL),
    "tolerance": number(0),
    "level": TEXT,
    "of_each": TEXT,
}
_GOAL = _object("a goal", "minimum, maximum or both, or target and tolerance", _GOAL_KEYS, _is_a_range)
_TABLE = _object(
    "a table",
    "width and rows",
    {
        "width": _SIZE,
        "rows": Rule(f"an integer >= 1, {OF_SETTING!r} or {OF_DATA!r}", _to_rows),
    },
    lambda table: len(table) == 2,
)
_LOSS_OF_LEVEL = _object(
    "a loss", "maximum and level", {"maximum": _REAL, "level": TEXT}, lambda loss: len(loss) == 2
)


def _to_target_loss(value: object) -> object:
    return (_LOSS_OF_LEVEL if isinstance(value, Mapping) else number(0)).convert(value)


def _named(rule: Rule, meaning: str) -> Any:  # noqa: ANN401 - as dataclasses.field
    return field(default_factory=dict, metadata={"rule": rule, "meaning": meaning})


@dataclass(frozen=True)
class Card(JsonObject):
    """What is known of a model without TensorFlow. All values are plain, as JSON has them."""

    learning_rates: Mapping[str, float] = setting(
        MISSING,
        Rule(f"optimizers with their rates; the optimizers are {', '.join(OPTIMIZERS)}", _to_rates),
        "The optimizers, each with the learning rate of this model. The first is the default.",
    )
    rates_per_gradient: bool = setting(
        False,
        BOOLEAN,
        "Whether `sgd` and `momentum` multiply the rate by n in a step that applies the mean of n gradients. "
        "For a model whose workers each learn other weights, because the mean divides each gradient by n.",
    )
    settings: tuple[str, ...] = setting(
        (),
        tuple_of(TEXT),
        "The training settings that only some models use, this model among them.",
    )
    data: str | None = setting(
        None,
        or_null(choice(IMAGES, CLICKS), "none that is known"),
        "The format of the data: `images` as MNIST's, or `clicks` as Criteo's. Every playbook checks the "
        "first rows in `trainer_data_source`.",
    )
    own_parts: bool = setting(
        False,
        BOOLEAN,
        "Whether each worker has a part of the examples that no other worker has (`Data(parts=workers)`). "
        "Such a run keeps its number of workers.",
    )
    metrics: Mapping[str, str] = _named(
        _mapping("metrics, each with higher, lower or neither", lambda _name: choice(HIGHER, LOWER, NEITHER)),
        "The metrics for `trainer_stop_when` and for goals, and which values are better.",
    )
    goals: Mapping[str, Mapping[str, Any]] = _named(
        _mapping("metrics, each with minimum, maximum or both, or target and tolerance", lambda _name: _GOAL),
        "What the final model must reach, by metric. With a `level`, the bounds count from that level. "
        "`of_each` is the prefix of metrics that show the same for single workers.",
    )
    target_loss: float | Mapping[str, Any] | None = setting(
        None,
        or_null(Rule("a number >= 0, or a mapping with level and maximum", _to_target_loss), "no target"),
        "The training loss that the run must reach. With a `level`, `maximum` counts from that level.",
    )
    tables: Mapping[str, Mapping[str, Any]] = _named(
        _mapping("tables with their width and rows", lambda _name: _TABLE),
        "The tables, each with the `width` of a row and the number of `rows`: `table_rows` if that setting "
        "decides, `data` if the data decide.",
    )
    tables_optional: bool = setting(
        False,
        BOOLEAN,
        "Whether the model also trains without its tables, with settings that tables do not support.",
    )
    layers: Mapping[str, tuple[int, int]] = _named(
        _mapping("layers with their inputs and units", lambda _name: Rule("[inputs, units]", _to_shape)),
        "The dense layers, each with the numbers of inputs and units, to compute the memory of each ps.",
    )

    @property
    def needs_tables(self) -> bool:
        """Whether the model trains only with tables; False if it has none, or if its tables are optional."""
        return bool(self.tables) and not self.tables_optional
