"""DLRM computes what Naumov et al. describe: the products of all pairs of an example's vectors."""

from itertools import combinations

import numpy as np
import tensorflow as tf

from trainer.model.clicks import COLUMNS
from trainer.model.models import dlrm

v1 = tf.compat.v1


def test_the_logit_is_of_the_numbers_and_of_each_pair_of_vectors_once() -> None:
    generator = np.random.default_rng(3)
    features = generator.integers(-3, 50, (4, COLUMNS))
    rows = generator.normal(size=(4, 26, 16)).astype(np.float32)
    layers = [
        (
            generator.normal(0, 0.2, shape).astype(np.float32),
            generator.normal(size=shape[1]).astype(np.float32),
        )
        for shape in dlrm.CARD["layers"].values()
    ]
    dense = [values for layer in layers for values in layer]
    with tf.Graph().as_default(), v1.Session() as session:
        found = session.run(dlrm.logits([*map(tf.constant, dense), tf.constant(rows)], tf.constant(features)))

    def through(layer: np.ndarray, first: int, last: int) -> np.ndarray:
        for weights, biases in layers[first:last]:
            layer = np.maximum(layer @ weights + biases, 0)
        return layer

    expected = []
    for numbers, of_example in zip(features[:, :13], rows, strict=True):
        bottom = through(np.concatenate([0.2 * np.log1p(np.maximum(numbers, 0)), numbers < 0]), 0, 2)
        vectors = [bottom, *(2 * of_example)]
        # In the order in which each vector comes with those before it.
        pairs = sorted(combinations(range(27), 2), key=lambda pair: (pair[1], pair[0]))
        products = [vectors[first] @ vectors[second] for first, second in pairs]
        hidden = through(np.concatenate([bottom, products]), 2, 4)
        expected.append(hidden @ layers[4][0][:, 0] + layers[4][1][0])
    np.testing.assert_allclose(found, expected, rtol=1e-4)
