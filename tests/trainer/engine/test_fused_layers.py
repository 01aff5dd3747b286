"""A worker's step computes the product, bias and activation of a layer in one operation."""

from collections import Counter

import pytest
import tensorflow as tf

from tests.trainer.engine.transfers import Tasks
from trainer.contract.settings import TrainingSettings

v1 = tf.compat.v1


@pytest.mark.parametrize(
    ("model", "convolutions", "products"),
    [("cnn", 2, 2), ("mnist_mlp", 0, 2), ("wide_deep", 0, 3), ("dlrm", 0, 5)],
)
def test_a_step_has_one_fused_operation_for_each_layer(model: str, convolutions: int, products: int) -> None:
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
    assert not operations["BiasAdd"] + operations["_MklBiasAdd"]
