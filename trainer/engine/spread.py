"""Creates a model's variables on the ps that variable_placement.py chose."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from trainer.engine.variable_placement import Piece, ToPlace, place
from trainer.model.models.model import Model, ModelContext
from trainer.model.pieces import AnyVariable, CutVariable

v1 = tf.compat.v1


def create_on_ps(model: Model, context: ModelContext) -> Sequence[AnyVariable]:
    """Create the model's variables in the default graph, spread over the ps; return them in their order.

    With one ps or none, no variable is cut. With several, they are created twice: first in a throw-away
    graph, which shows how large each variable is, and which variables the model itself places.
    """
    ps = context.devices.ps
    if len(ps) < 2:
        return model.create_variables(context)
    to_place: list[ToPlace] = []

    def note_size(create: Callable[..., tf.Variable], **arguments: object) -> tf.Variable:
        variable = create(**arguments)
        to_place.append(_to_place(model, variable))
        return variable

    with tf.Graph().as_default(), v1.device("/job:ps"), v1.variable_creator_scope(note_size):
        model.create_variables(context)
    places = iter(place(to_place, len(ps)))

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


def _to_place(model: Model, variable: tf.Variable) -> ToPlace:
    place = tf.DeviceSpec.from_string(variable.device)
    numbers, width = variable.shape.num_elements() or 0, variable.dtype.size
    if (place.job, place.task) != ("ps", None):
        return ToPlace(numbers if place.job == "ps" else 0, width, ps=place.task or 0)
    # Variables that are not floats are not trained, and a constraint may need the whole variable.
    whole = not variable.dtype.is_floating or variable.constraint is not None or model.travels_alone(variable)
    return ToPlace(numbers, width, whole=whole)


def _cut(
    create: Callable[..., tf.Variable], arguments: dict[str, Any], pieces: Sequence[Piece], ps: Sequence[str]
) -> CutVariable:
    """Create a variable for each piece, with its section of the initial value; return a CutVariable of them.

    `arguments` are the arguments of `create` for the whole variable. `ps` are the devices of the ps.
    """
    first, variables = arguments["initial_value"], []
    with tf.name_scope(arguments["name"] or "Variable") as scope:
        with tf.name_scope("Initializer"):
            value = tf.convert_to_tensor(first() if callable(first) else first, arguments["dtype"])
            row = tf.reshape(value, [-1])
        for number, (index, start, stop) in enumerate(pieces):
            part = {"name": f"part_{number}", "initial_value": row[start:stop], "shape": None}
            with tf.device(ps[index]):
                variables.append(create(**arguments | part))
    return CutVariable(scope.rstrip("/"), value.shape, tuple(variables))
