"""The saved models of a run, by the names and sizes of its files."""

import json
import os
from pathlib import Path

import pytest

from psfleet.evidence.saved_models import find_models, model_lines


def made(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x" * 1000)
    return folder


def lines(folder: Path) -> list[tuple[str, bool]]:
    return list(model_lines(folder, "runs/r1"))


def checkpoint(prefix: str, parts: int = 1) -> list[str]:
    return [f"{prefix}.index", *(f"{prefix}.data-{part:05}-of-{parts:05}" for part in range(parts))]


def test_each_kind_of_model_is_shown_with_its_size_and_the_call_that_loads_it(tmp_path: Path) -> None:
    export = "saved/worker0/tmp/export"
    names = [f"{export}/saved_model.pb", *checkpoint(f"{export}/variables/variables"), "saved/chief0/m.keras"]
    names += [*checkpoint("checkpoints/model.ckpt-9"), *checkpoint("checkpoints/model.ckpt-10", 2)]
    names += [
        "checkpoints/model.ckpt-10.meta",
        "checkpoints/checkpoint",
        "events/x.keras",
        "output/result.csv",
    ]
    assert lines(made(tmp_path, *names)) == [
        (f"SavedModel, 3 kB: tf.saved_model.load('runs/r1/{export}')", True),
        ("Keras model, 1 kB: tf.keras.models.load_model('runs/r1/saved/chief0/m.keras')", True),
        ("checkpoint, 3 kB: tf.train.load_checkpoint('runs/r1/checkpoints/model.ckpt-10')", True),
    ]


def test_other_models_in_a_shared_folder_are_also_shown(tmp_path: Path) -> None:
    tmp = "saved/worker0/tmp"
    names = [f"{tmp}/saved_model.pb", *checkpoint(f"{tmp}/variables/variables"), f"{tmp}/junk"]
    assert lines(made(tmp_path, *names, *checkpoint(f"{tmp}/logs/a-1"), f"{tmp}/b.keras")) == [
        (f"SavedModel, 3 kB: tf.saved_model.load('runs/r1/{tmp}')", True),
        (f"Keras model, 1 kB: tf.keras.models.load_model('runs/r1/{tmp}/b.keras')", True),
        (f"checkpoint, 2 kB: tf.train.load_checkpoint('runs/r1/{tmp}/logs/a-1')", True),
    ]


def test_the_size_of_a_checkpoint_has_the_rows_of_its_tables(tmp_path: Path) -> None:
    names = ["tables.json", "tables_16.0-of-2.00000.rows", "tables_16.Adagrad.1-of-2.00012.rows"]
    made(tmp_path, *checkpoint("checkpoints/model.ckpt-9"), *checkpoint("checkpoints/model.ckpt-10"))
    made(tmp_path, *(f"checkpoints/model.ckpt-{step}.{name}" for step in (9, 10) for name in names))
    made(
        tmp_path, "checkpoints/model.ckpt-10.notes", "checkpoints/model.ckpt-100.tables_16.0-of-1.00000.rows"
    )
    call = "tf.train.load_checkpoint('runs/r1/checkpoints/model.ckpt-10')"
    assert lines(tmp_path) == [(f"checkpoint, 5 kB: {call}", True)]


@pytest.mark.parametrize(
    ("listed", "left_out", "lacks"),
    [
        (3, ["tables_16.1-of-2.00000.rows"], "2 of 3 files with rows"),
        (1, ["tables.json"], "the list of 2 files with rows"),
        (2, [], ""),
    ],
)
def test_a_checkpoint_whose_rows_stayed_on_the_hosts_is_no_model(
    tmp_path: Path, listed: int, left_out: list[str], lacks: str
) -> None:
    names = ["tables.json", "tables_16.0-of-2.00000.rows", "tables_16.1-of-2.00000.rows"]
    prefix = "checkpoints/model.ckpt-10"
    made(tmp_path, *checkpoint(prefix), *(f"{prefix}.{name}" for name in names))
    (tmp_path / f"{prefix}.tables.json").write_text(json.dumps([f"{n:064x}" for n in range(listed)]))
    for name in left_out:
        (tmp_path / f"{prefix}.{name}").unlink()
    [(line, is_good)] = lines(tmp_path)
    assert is_good == (not lacks)
    if lacks:
        assert line == f"checkpoint 'runs/r1/{prefix}' lacks {lacks}: see what was left out"


def test_an_incomplete_checkpoint_is_not_listed(tmp_path: Path) -> None:
    made(
        tmp_path,
        "checkpoints/a-2.data-00000-of-00002",
        "checkpoints/a-2.index",
        *checkpoint("checkpoints/a-1"),
    )
    made(tmp_path, "checkpoints/b.data-00000-of-00001")
    assert [model.path for model in find_models(tmp_path)] == ["checkpoints/a-1"]


def test_models_of_other_hosts_come_last_and_long_lists_are_shortened(tmp_path: Path) -> None:
    made(tmp_path, "other_hosts/n2/output/a.keras", *(f"saved/worker1/{name}.weights.h5" for name in "abcd"))
    told = lines(tmp_path)
    assert [line.partition(",")[0] for line, _ in told] == ["Keras weights"] * 4 + [
        "and 1 more: other_hosts/n2/output/a.keras"
    ]


def test_no_link_is_followed(tmp_path: Path) -> None:
    made(tmp_path / "else", "a.keras")
    folder = made(tmp_path / "r1", "saved/worker0/x")
    (folder / "saved/worker0/link").symlink_to(tmp_path / "else")
    (folder / "output").symlink_to(tmp_path / "else")
    assert find_models(folder) == []


@pytest.mark.parametrize(
    ("places", "said", "is_good"),
    [
        (
            [],
            "none was collected: trainer_program_collect names files that psfleet does not see a program "
            "save",
            False,
        ),
        (
            [("/dev/shm/m", "checkpoint"), ("/dev/shm/s", "summaries")],
            "none was collected: worker0 saved to /dev/shm/m, which was deleted when the task ended",
            False,
        ),
        (
            [("/tmp/m", "checkpoint")],
            "none was collected: worker0 saved to /tmp/m, none of it was collected: see what was left out",
            False,
        ),
        ([("gs://bucket/m", "SavedModel")], "worker0 saved to gs://bucket/m", True),
    ],
)
def test_a_run_without_a_collected_model_gets_an_explanation(
    tmp_path: Path, places: list[tuple[str, str]], said: str, *, is_good: bool
) -> None:
    (tmp_path / "saves").mkdir()
    notes = [json.dumps({"path": path, "kind": kind}) + "\n" for path, kind in places]
    (tmp_path / "saves/worker0.jsonl").write_text("".join(notes))
    os.mkfifo(tmp_path / "saves/worker1.jsonl")
    assert lines(tmp_path) == [(said, is_good)]
