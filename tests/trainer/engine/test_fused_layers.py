"""A worker's step computes the product, bias and activation of a layer in one operation."""

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.engine.transfers import Tasks
from trainer.contract.settings import TrainingSettings
from trainer.engine.bias_gradients import bias_gradients_first

v1 = tf.compat.v1


@pytest.mark.parametrize(
    ("model", "convolutions", "products"),
    [("cnn", 2, 2), ("mnist_mlp", 0, 2), ("wide_deep", 0, 3), ("dlrm", 0, 5)],
)
def test_each_layer_is_one_operation_and_the_gradient_of_its_bias_is_one(
    model: str, convolutions: int, products: int
) -> None:
    graph, session = Tasks(1).begin(0, TrainingSettings(model=model, table_rows=100))
    session.initialise()
    session.start_batches(session.counters())
    options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
    session.session.run(graph.step, options=options, run_metadata=metadata)
    operations = Counter(node.op for part in metadata.partition_graphs for node in part.node)
    session.close()
    # On processors of Intel's and AMD's kind oneDNN takes over, as `_MklNativeFusedMatMul`.
    fused = {
        kind: operations[f"_Fused{kind}"] + operations[f"_MklNativeFused{kind}"]
        for kind in ("Conv2D", "MatMul")
    }
    assert fused == {"Conv2D": convolutions, "MatMul": products}
    assert operations["BiasAddGrad"] == convolutions + products
    assert not operations["BiasAdd"] + operations["_MklNativeConv2DBackpropFilterWithBias"]


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_the_gradient_of_a_bias_is_as_without_the_override(data_format: str) -> None:
    with tf.Graph().as_default():
        features, biases = (
            tf.reshape(tf.range(24.0), [1, 2, 2, 6]),
            tf.range(6.0 if data_format == "NHWC" else 2.0),
        )

        def gradients() -> list[tf.Tensor]:
            loss = tf.reduce_sum(tf.nn.bias_add(features, biases, data_format=data_format) ** 2)
            return list(v1.gradients(loss, [features, biases]))

        expected = gradients()
        with bias_gradients_first():
            own = gradients()
        assert own[0].op.control_inputs == [own[1].op]
        with v1.Session() as session:
            for value, wanted in zip(*session.run([own, expected]), strict=True):
                np.testing.assert_array_equal(value, wanted)
