"""A checkpoint of a program of TensorFlow 1 is exported from its inputs to its outputs."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.few import few
from trainer.contract.exit_codes import CONFIGURATION, INPUT
from trainer.contract.export import CARD, EXPORT
from trainer.model.meta_graphs import export_checkpoint
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1


def graph_of_tutorial(device: str, *, use_resource: bool) -> tuple[tf.Graph, tf.Operation]:
    """Build what a script of the tutorials trains, with its variables on a device; return its step, too."""
    with tf.Graph().as_default() as graph, v1.device(device):
        x = v1.placeholder(tf.float32, [None, 4], "x")
        labels = v1.placeholder(tf.int64, [None], "labels")
        keep = v1.placeholder(tf.float32, [], "keep_prob")
        noise = v1.placeholder_with_default(0.0, [], "noise")
        hidden_weights = v1.get_variable("hidden/w", [4, 8], use_resource=use_resource)
        output_weights = v1.get_variable("output/w", [8, 3], use_resource=use_resource)
        hidden = v1.nn.dropout(tf.nn.relu(tf.matmul(x + noise, hidden_weights)), keep_prob=keep)
        logits = tf.matmul(hidden, output_weights, name="logits")
        tf.nn.softmax(logits, name="predictions/softmax")
        tf.argmax(logits, axis=1, name="predictions/class")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        step = v1.train.AdamOptimizer(0.1).minimize(loss, v1.train.get_or_create_global_step())
    return graph, step


def trained(folder: Path, *, use_resource: bool) -> Path:
    """Train in this process; return the checkpoint, whose graph has its variables on a ps."""
    graph, step = graph_of_tutorial("", use_resource=use_resource)
    with graph.as_default(), v1.Session() as session:
        session.run(v1.global_variables_initializer())
        feeds = {"x:0": np.ones([5, 4]), "labels:0": np.zeros(5), "keep_prob:0": 1.0}
        for _ in range(3):
            session.run(step, feeds)
        path = v1.train.Saver().save(session, str(folder / "model.ckpt"), 3, write_meta_graph=False)
    graph, _ = graph_of_tutorial("/job:ps/task:0", use_resource=use_resource)
    with graph.as_default():
        v1.train.Saver().export_meta_graph(f"{path}.meta")
    return Path(path)


@pytest.mark.parametrize("use_resource", few([True, False], True))
def test_what_leads_from_the_inputs_to_the_outputs_serves(tmp_path: Path, *, use_resource: bool) -> None:
    path = trained(tmp_path, use_resource=use_resource)
    folder = export_checkpoint(
        path, tmp_path, {"run_id": "r1"}, ["x", "keep_prob:0"], ["predictions/softmax:0", "predictions/class"]
    )
    assert folder == tmp_path / EXPORT
    card = json.loads((folder / CARD).read_text())
    assert (card["run_id"], card["global_step"]) == ("r1", 3)
    index = hashlib.sha256(Path(f"{path}.index").read_bytes()).hexdigest()
    assert card["fingerprint"] == index[:16]
    assert card["inputs"] == {
        "x": {"dtype": "float32", "shape": [None, 4]},
        "keep_prob": {"dtype": "float32", "shape": []},
    }
    assert card["outputs"].keys() == {"predictions_softmax", "predictions_class"}
    loaded = tf.saved_model.load(str(folder))
    assert {each.name for each in loaded.variables} == {"hidden/w:0", "output/w:0"}
    features = np.random.default_rng(0).standard_normal([7, 4]).astype(np.float32)
    found = loaded.signatures["serving_default"](x=tf.constant(features), keep_prob=tf.constant(1.0))
    checkpoint = tf.train.load_checkpoint(str(path))
    hidden, output = (checkpoint.get_tensor(name) for name in ("hidden/w", "output/w"))
    scores = np.maximum(features @ hidden, 0) @ output
    assert found["predictions_softmax"].numpy() == pytest.approx(tf.nn.softmax(scores).numpy(), abs=1e-6)
    assert found["predictions_class"].numpy().tolist() == np.argmax(scores, axis=1).tolist()


def refusal(path: Path, inputs: list[str], outputs: list[str]) -> TaskFailure:
    with pytest.raises(TaskFailure) as failure:
        export_checkpoint(path, path.parent, {}, inputs, outputs)
    assert not (path.parent / EXPORT).exists()
    return failure.value


def test_what_is_missing_is_named_with_what_there_is(tmp_path: Path) -> None:
    path = trained(tmp_path, use_resource=True)
    for inputs, outputs, why in (
        ([], [], "the names of inputs are not given; the names of outputs are not given"),
        (["x", "y"], ["predictions/softmax"], "its graph has no y"),
        (["x"], ["logits:7"], "its graph has no logits:7"),
    ):
        failure = refusal(path, inputs, outputs)
        assert failure.code == CONFIGURATION
        assert why in failure.reason
        assert "Its placeholders: x:0 (float32 (None, 4)), labels:0 (int64 (None,))" in failure.reason
        assert "the likely outputs first: " in failure.reason
        candidates = failure.reason.partition("the likely outputs first: ")[2]
        assert "predictions/softmax:0 (float32 (None, 3)), logits:0" in candidates
        assert "gradients" not in candidates
    failure = refusal(path, ["x"], ["predictions/softmax"])
    assert failure.reason == "the outputs also depend on keep_prob:0: add these to the inputs"


def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = trained(tmp_path, use_resource=True)
    failure = refusal(path.with_name("model.ckpt-9"), ["x"], ["logits"])
    assert failure.code == INPUT
    assert "model.ckpt-9.meta cannot be read: " in failure.reason
    path.with_name("model.ckpt-3.index").unlink()
    assert "model.ckpt-3 cannot be restored: " in refusal(path, ["x"], ["logits"]).reason
    path.with_name("model.ckpt-3.meta").write_bytes(b"damaged")
    assert "model.ckpt-3.meta cannot be read: " in refusal(path, ["x"], ["logits"]).reason
