"""A small model with tables of two widths, the same in NumPy, and its numbers on the ps."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.contract.model_card import Card
from trainer.contract.settings import TrainingSettings
from trainer.engine.training import TrainingGraph
from trainer.model.data import Data, Examples
from trainer.model.models import REGISTRY
from trainer.model.models.model import Model, ModelContext, Table, Values, Variables
from trainer.model.pieces import TableVariable, name_of, pieces_of, split_array, value_of

v1 = tf.compat.v1

Numbers = npt.NDArray[Any]
# Rows and width of each table, and the columns of the features that have its ids. Rows from 8 on of `many`
# are in no example.
ROWS = {"many": (23, 4), "wide": (11, 1), "few": (5, 4)}
COLUMNS = {"many": slice(0, 3), "wide": slice(1, 3), "few": slice(3, 4)}
WEIGHTS = 3 * 4 + 2 + 4
NEEDED_OF_MANY = 8
# The tables of width 4 are fused, `few` behind `many`.
BEGINS = {"many": ("tables_4", 0), "wide": ("tables_1", 0), "few": ("tables_4", 23)}


def examples(count: int, seed: int) -> Examples:
    """Ids as features, some of them twice in an example, and random labels."""
    generator = np.random.default_rng(seed)
    of_many = generator.integers(0, NEEDED_OF_MANY, (count, 3))
    features = np.concatenate([of_many, generator.integers(0, 5, (count, 1))], axis=1)
    return Examples(features.astype(np.int64), generator.normal(size=count).astype(np.float32))


def _create_variables(_context: ModelContext) -> Variables:
    drawn = v1.random_normal_initializer()
    return [v1.get_variable("weights", [WEIGHTS], initializer=drawn, use_resource=True)]


def _predicted(values: Values) -> tf.Tensor:
    weights, *of_tables = values
    rows = tf.concat([tf.reshape(its, [tf.shape(its)[0], -1]) for its in of_tables], axis=1)
    return tf.linalg.matvec(tf.ensure_shape(rows, [None, WEIGHTS]), weights)


def _loss(_context: ModelContext, values: Values, _features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.square(_predicted(values) - labels))


MODEL = dataclasses.replace(
    REGISTRY["linear"],
    name="tables",
    card=Card(learning_rates={"adagrad": 0.1, "sgd": 0.1, "adam": 0.1, "ftrl": 0.1}),
    load=lambda _settings, _workers: Data(examples(60, 1), examples(20, 2)),
    create_variables=_create_variables,
    loss=_loss,
    metrics=lambda context, values, *batch: {"loss": _loss(context, values, *batch)},
    outputs=lambda _context, values, _features: {"y": _predicted(values)},
    watched=lambda values: {"weight": values[0][0]},
    tables=lambda _context: [
        Table(name, *shape, lambda _context, features, name=name: features[:, COLUMNS[name]], scale=1.0)  # type: ignore[misc]
        for name, shape in ROWS.items()
    ],
)


def loss_and_gradients(
    model: Mapping[str, Numbers], features: Numbers, labels: Numbers
) -> tuple[float, dict[str, Numbers]]:
    """The loss of a batch, and its gradients with respect to whole variables and fused tables."""
    parts, places = [], []
    for name, (fused, begin) in BEGINS.items():
        ids = features[:, COLUMNS[name]] + begin
        parts.append(model[fused][ids].reshape(len(ids), -1))
        places.append((fused, ids))
    rows = np.concatenate(parts, axis=1)
    error = rows @ model["weights"] - labels
    slope = 2 * error / len(labels)
    gradients = {"weights": rows.T @ slope}
    of_rows = np.split(
        np.outer(slope, model["weights"]), np.cumsum([its.shape[1] for its in parts])[:-1], axis=1
    )
    for (fused, ids), its in zip(places, of_rows, strict=True):
        whole = gradients.setdefault(fused, np.zeros_like(model[fused]))
        np.add.at(whole, ids.reshape(-1), its.reshape(ids.size, -1))
    return float(np.mean(error**2)), gradients


def recorded(model: Model, batches: list[tuple[tf.Tensor, tf.Tensor]]) -> Model:
    """The model, which notes the batches that a loss is computed of."""

    def loss(context: ModelContext, values: Values, *batch: tf.Tensor) -> tf.Tensor:
        batches.append((batch[0], batch[1]))
        return model.loss(context, values, *batch)

    return dataclasses.replace(model, loss=loss)


def values_of(session: tf.compat.v1.Session, graph: TrainingGraph) -> dict[str, Numbers]:
    """Name -> value of all variables of a graph, with the optimizer's."""
    found: dict[str, Numbers]
    found, of_parts = session.run(_reads_of(graph))
    for table in _tables_of(graph):
        found[table.name] = whole = np.empty(table.shape, table.dtype.as_numpy_dtype)
        for number, part in enumerate(of_parts[table.name]):
            whole[number :: len(table.pieces)] = part
    return found


def _tables_of(graph: TrainingGraph) -> list[TableVariable]:
    return [its for its in graph.variables if isinstance(its, TableVariable)]


@lru_cache(maxsize=4)
def _reads_of(graph: TrainingGraph) -> tuple[dict[str, tf.Tensor], dict[str, list[tf.Tensor]]]:
    """Return the operations that read a graph's variables, by name, and its tables, by name and part.

    They are created once: after each change of a graph, its session prepares every call again.
    """
    with graph.graph.as_default():
        others = (its for its in graph.variables if not isinstance(its, TableVariable))
        values = {name_of(its): value_of(its) for its in others}
        parts = {table.name: [piece.read_value() for piece in table.pieces] for table in _tables_of(graph)}
    return values, parts


def set_values(session: tf.compat.v1.Session, graph: TrainingGraph, values: Mapping[str, Numbers]) -> None:
    """Give all variables of a graph these values, by their names; the number of ps may be another."""
    feeds: dict[str, Numbers] = {}
    initializers: list[tf.Operation] = []
    for variable in graph.variables:
        name = name_of(variable)
        # Of what Adam has for each ps, those values may have fewer: "adam_steps", but no "adam_steps_1".
        pieces, whole = pieces_of(variable), values[name if name in values else name.rpartition("_")[0]]
        if isinstance(variable, TableVariable):
            of_pieces = [whole[number :: len(pieces)] for number in range(len(pieces))]
        else:
            of_pieces = list(split_array(variable, whole))
        for piece, value in zip(pieces, of_pieces, strict=True):
            initializers.append(piece.initializer)
            feeds[piece.initializer.inputs[1].name] = value
    session.run(initializers, feeds)


def settings_of(**others: object) -> TrainingSettings:
    """Settings for the model, with these in place of others."""
    return TrainingSettings.from_mapping(
        {"optimizer": "adagrad", "batch_size": 6, "steps_per_call": 1, **others}
    )


def needed_rows(batches: Sequence[tuple[Numbers, Numbers]]) -> dict[str, Numbers]:
    """Which rows of the fused tables these batches need."""
    needed = {"tables_4": np.zeros(28, bool), "tables_1": np.zeros(11, bool)}
    for features, _ in batches:
        for name, (fused, begin) in BEGINS.items():
            needed[fused][features[:, COLUMNS[name]].reshape(-1) + begin] = True
    return needed
