"""A model's variables on the ps, each of which holds as many bytes as the others: see placement.py."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from trainer.engine.placement import Asked, Piece, place
from trainer.model.models.model import Model, ModelContext
from trainer.model.pieces import AnyVariable, CutVariable

v1 = tf.compat.v1


def create_on_ps(model: Model, context: ModelContext) -> Sequence[AnyVariable]:
    """The model's variables, in the default graph; where there are several ps, placed and cut for these.

    For that they are created twice, the first time in a graph that nothing comes of: it shows how large they
    are, and which of them the model itself has placed.
    """
    ps = context.devices.ps
    if len(ps) < 2:
        return model.create_variables(context)
    asked: list[Asked] = []

    def ask(create: Callable[..., tf.Variable], **arguments: object) -> tf.Variable:
        variable = create(**arguments)
        asked.append(_asked(model, variable))
        return variable

    with tf.Graph().as_default(), v1.device("/job:ps"), v1.variable_creator_scope(ask):
        model.create_variables(context)
    places = iter(place(asked, len(ps)))

    def create_placed(create: Callable[..., tf.Variable], **arguments: Any) -> AnyVariable:  # noqa: ANN401
        pieces = next(places)
        if not pieces:
            return create(**arguments)
        if len(pieces) > 1:
            return _cut(create, arguments, pieces, ps)
        with tf.device(ps[pieces[0].ps]):
            return create(**arguments)

    with v1.variable_creator_scope(create_placed):
        return model.create_variables(context)


def _asked(model: Model, variable: tf.Variable) -> Asked:
    place = tf.DeviceSpec.from_string(variable.device)
    numbers, width = variable.shape.num_elements() or 0, variable.dtype.size
    if (place.job, place.task) != ("ps", None):
        return Asked(numbers if place.job == "ps" else 0, width, ps=place.task or 0)
    # What learns are floats, and a constraint may be one on all of them.
    whole = not variable.dtype.is_floating or variable.constraint is not None or model.travels_alone(variable)
    return Asked(numbers, width, whole=whole)


def _cut(
    create: Callable[..., tf.Variable], arguments: dict[str, Any], pieces: Sequence[Piece], ps: Sequence[str]
) -> CutVariable:
    """A variable for each piece, with its part of the first value that the whole would have."""
    first, made = arguments["initial_value"], []
    with tf.name_scope(arguments["name"] or "Variable") as scope:
        with tf.name_scope("Initializer"):
            value = tf.convert_to_tensor(first() if callable(first) else first, arguments["dtype"])
            row = tf.reshape(value, [-1])
        for number, (of_ps, start, stop) in enumerate(pieces):
            part = {"name": f"part_{number}", "initial_value": row[start:stop], "shape": None}
            with tf.device(ps[of_ps]):
                made.append(create(**arguments | part))
    return CutVariable(scope.rstrip("/"), value.shape, tuple(made))
