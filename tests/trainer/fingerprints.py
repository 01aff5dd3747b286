"""What a run's clients say of the model that they have left, against the checkpoint of it."""

from __future__ import annotations

import tensorflow as tf

from tests.trainer.processes import Cluster
from trainer.fingerprint import fingerprint_of


def assert_one_fingerprint(cluster: Cluster, *clients: str) -> None:
    """Each client has read the fingerprint of the last checkpoint, at its global step."""
    step = cluster.records("worker0", "finished")[-1].integer("global_step")
    reader = tf.train.load_checkpoint(
        str(cluster.directory("worker0") / "checkpoints" / f"model.ckpt-{step}")
    )
    saved = fingerprint_of({name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()})
    for client in clients:
        fields = cluster.records(client, "finished")[-1].fields
        assert (fields.get("fingerprint"), fields.get("fingerprint_step")) == (saved, step), (
            f"{client}: {fields}\n{cluster.outputs()}"
        )
