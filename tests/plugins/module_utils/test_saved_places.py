"""Where a program's saves are on the host, and where they are collected to."""

import json

import pytest

from plugins.module_utils.saved_places import LONGEST, MOST_PLACES, SavedPlace, noted_places


@pytest.mark.parametrize(
    ("path", "parts_on_host", "path_on_controller"),
    [
        ("/tmp/logs", "runs/.tmp/r1/worker0/logs", "saved/worker0/tmp/logs"),
        ("/var/tmp/m/1", "runs/.tmp/r1/worker0/m/1", "saved/worker0/tmp/m/1"),
        ("model.keras", "runs/r1/model.keras", "saved/worker0/model.keras"),
        ("checkpoints/deep", "runs/r1/checkpoints/deep", "checkpoints/deep"),
        ("/dev/shm/m", "runs", ""),
        ("/tmp", "runs", ""),
        ("/tmp/../etc", "runs", ""),
        ("/tmp//etc", "runs", ""),
        ("../r2", "runs", ""),
        ("gs://bucket/m", "runs", ""),
    ],
)
def test_a_place_of_a_save_is_mapped_to_its_path_on_the_host_and_in_the_run_folder(
    path: str, parts_on_host: str, path_on_controller: str
) -> None:
    place = SavedPlace(path)
    assert "/".join(("runs", *place.parts_on_host("r1", "worker0"))) == parts_on_host
    assert place.path_on_controller("worker0") == path_on_controller


@pytest.mark.parametrize(
    ("path", "parts_on_host", "path_on_controller"),
    [
        ("/tmp", "runs/.tmp/r1/worker0", "saved/worker0/tmp"),
        ("/var/tmp", "runs/.tmp/r1/worker0", "saved/worker0/tmp"),
        (".", "runs/r1", "saved/worker0"),
        ("/", "runs", ""),
        ("", "runs", ""),
    ],
)
def test_only_a_saved_model_is_collected_from_a_shared_folder(
    path: str, parts_on_host: str, path_on_controller: str
) -> None:
    place = SavedPlace(path, "SavedModel")
    assert "/".join(("runs", *place.parts_on_host("r1", "worker0"))) == parts_on_host
    assert place.path_on_controller("worker0") == path_on_controller
    assert ("variables" in place.members) == bool(path_on_controller)
    assert SavedPlace("/tmp/m", "SavedModel").members == ()


def test_invalid_and_excess_notes_are_ignored() -> None:
    lines = ["", "x", "[]", '{"path": "/tmp/a"}', '{"path": 1, "kind": "x"}', '{"path": "", "kind": ""}']
    lines += [json.dumps({"path": "x" * (LONGEST + 1), "kind": ""}), "[" * 100_000]
    good = [{"path": "/tmp/a", "kind": "checkpoint", "more": 1}, {"path": "b", "kind": "Keras"}]
    text = "\n".join([*lines, *map(json.dumps, good), *map(json.dumps, good)])
    assert noted_places(text) == [SavedPlace("/tmp/a", "checkpoint"), SavedPlace("b", "Keras")]
    assert noted_places(text.encode() + b"\xff\n") == noted_places(text)
    many = "\n".join(json.dumps({"path": f"/tmp/{number}", "kind": ""}) for number in range(1000))
    assert len(noted_places(many)) == MOST_PLACES
