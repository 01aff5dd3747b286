"""The observer notes where a program saves, whichever interface of TensorFlow the program uses."""

import json
from pathlib import Path

import pytest

from plugins.module_utils.saved_places import SavedPlace, noted_places
from tests.trainer.program.launched import Tasks, run_alone

SAVES = """
    import os, sys
    import psfleet_records
    from psfleet_observer import guard
    guard.stop()                                   # as where its steps cannot be looked at any further
    import tensorflow as tf
    v1, at = tf.compat.v1, os.environ["AT"]
    psfleet_records.started()                      # where it records itself, its saves are seen, too
    os.symlink(at, "link")
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None])
        weight = v1.get_variable("weight", [])
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver()
        for step in range(3):
            saver.save(session, "link/one/model.ckpt", global_step=step)
        saver.save(session, "checkpoints/model.ckpt", step)
        saver.save(session, "alone.ckpt")
        v1.saved_model.simple_save(session, f"{at}/export/1", {"x": x}, {"y": x * weight})
        v1.summary.FileWriter(f"{at}/summaries").close()
        v1.summary.FileWriter(".").close()
        try:
            saver.save(session, "")
        except ValueError:
            pass
    module = tf.Module()
    module.weight = tf.Variable(1.0)
    tf.saved_model.save(module, f"{at}/export/2")
    tf.saved_model.save(module, ".")
    checkpoint = tf.train.Checkpoint(weight=module.weight)
    checkpoint.write(f"{at}/written/ckpt-7")
    tf.train.CheckpointManager(checkpoint, f"{at}/managed", max_to_keep=1).save()
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    model.save("model.keras")
    model.save_weights(tf.io.gfile.join(at, "weights", "last.weights.h5"))
    tf.summary.create_file_writer(logdir=f"{at}/summaries2").close()
    with v1.Graph().as_default():
        v1.train.get_or_create_global_step()
        with v1.train.MonitoredTrainingSession(checkpoint_dir=f"{at}/session") as session:
            pass
"""


def notes(tasks: Tasks) -> list[SavedPlace]:
    return noted_places((tasks.directory("worker0") / "saves/worker0.jsonl").read_text())


@pytest.mark.slow
def test_each_place_of_a_save_is_noted_once(tmp_path: Path) -> None:
    at = tmp_path / "elsewhere"
    (at / "weights").mkdir(parents=True)
    tasks = run_alone(tmp_path, SAVES, AT=str(at))
    assert "psfleet, which looks" not in tasks.output("worker0")
    wanted = [
        SavedPlace(f"{at}/one", "checkpoint"),
        SavedPlace("checkpoints", "checkpoint"),
        SavedPlace("alone.ckpt", "checkpoint"),
        SavedPlace(f"{at}/export/1", "SavedModel"),
        SavedPlace(f"{at}/summaries", "summaries"),
        SavedPlace("events.out.tfevents", "summaries"),
        SavedPlace(f"{at}/export/2", "SavedModel"),
        SavedPlace(".", "SavedModel"),
        SavedPlace(f"{at}/written", "checkpoint"),
        SavedPlace(f"{at}/managed", "checkpoint"),
        SavedPlace("model.keras", "Keras"),
        SavedPlace(f"{at}/weights", "Keras"),
        SavedPlace(f"{at}/summaries2", "summaries"),
    ]
    wanted += [SavedPlace(f"{at}/session", "summaries"), SavedPlace(f"{at}/session", "checkpoint")]
    assert notes(tasks) == wanted
    lines = (tasks.directory("worker0") / "saves/worker0.jsonl").read_text().splitlines()
    assert len(lines) == len({json.loads(line)["path"] + json.loads(line)["kind"] for line in lines})
