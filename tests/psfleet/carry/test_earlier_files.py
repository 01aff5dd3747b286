"""Nothing that was ever collected is lost by a later collection, and what grows leaves no copies."""

from pathlib import Path

import pytest

from psfleet.carry.earlier_files import lives
from tests.psfleet.carry.brought_files import bring, content

GROWN = {
    "logs/worker0.out": ["Step 1\n", "Step 1\nStep 2\n"],
    "events/worker0.jsonl": ["{}\n", "{}\n{}\n"],
    "checkpoints/checkpoint": [f'model_checkpoint_path: "/x/model-{step}"\n' for step in (7, 8)],
    "output/x": ["the same", "the same"],
    "output/zeros": ["abc\0\0", "abcde"],
    "output/empty": ["", "x"],
}


def test_a_file_that_has_grown_leaves_no_copy(tmp_path: Path) -> None:
    for collection in (0, 1):
        files = {name: of[collection] for name, of in GROWN.items()} | {f"checkpoints/m-{collection}": "x"}
        assert bring(tmp_path / "r1", "n1", files) == []
    found = content(tmp_path / "r1")
    found.pop("collected.json")
    assert found.pop("checkpoints/checkpoint") == 'model_checkpoint_path: "model-8"\n'
    expected = {name: of[1] for name, of in GROWN.items() if name != "checkpoints/checkpoint"}
    assert found == expected | {"checkpoints/m-0": "x", "checkpoints/m-1": "x"}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "output/x",
        "output/checkpoint",
        "logs/worker0.out",
        "events/worker0.jsonl",
        "checkpoints/model-7.index",
        "saved/worker0/tmp/model.keras",
        "summaries/events.out.tfevents.1",
        "devices/worker0.json",
        "saves/worker0.jsonl",
    ],
)
def test_no_later_collection_overwrites_another_content(tmp_path: Path, name: str, *, known: bool) -> None:
    folder = tmp_path / "r1"
    contents = ["old and long", "new", "new and longer", "third", "old and long", "third\0\0"]
    for each in contents:
        assert bring(folder, "n1", {name: each}) == []
        if not known:  # the owner of the file
            (folder / "collected.json").unlink()
    found = content(folder)
    found.pop("collected.json", None)
    kept = ["old and long", "new and longer", "third", "old and long"]
    assert found == {f"earlier/{number}/{name}": each for number, each in enumerate(kept, start=1)} | {
        name: "third\0\0"
    }
    assert [path.read_text() for path in lives(folder, name)] == [*kept, "third\0\0"]


def test_a_file_and_a_folder_of_one_name_are_both_kept(tmp_path: Path) -> None:
    for name in ("output/x", "output/x/y", "output/x", "output/x/y/z"):
        assert bring(tmp_path / "r1", "n1", {name: name}) == []
    found = content(tmp_path / "r1")
    found.pop("collected.json")
    assert sorted(found.values()) == ["output/x", "output/x", "output/x/y", "output/x/y/z"]
    assert found["output/x/y/z"] == "output/x/y/z"


def test_a_file_that_makes_way_twice_is_kept_twice(tmp_path: Path) -> None:
    for text in ("first", "second"):
        bring(tmp_path / "r1", "n2", {"output/x": text})
        bring(tmp_path / "r1", "n1", {"output/x": "of n1"})
        (tmp_path / "r1" / "output/x").unlink()
        (tmp_path / "r1" / "collected.json").unlink()
    found = content(tmp_path / "r1")
    assert found == {
        "other_hosts/n2/output/x": "second",
        "earlier/1/other_hosts/n2/output/x": "first",
    }
