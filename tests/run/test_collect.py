import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from plugins.action.collect_run import unpack
from plugins.collected_files import Places, allowed_files

HOSTS = ["n1", "n2", "n3"]
OF_NODE1 = [{"name": "ps0"}, {"name": "worker0"}]
NAMES = {
    "logs/ps0.out": True,
    "events/worker0.jsonl": True,
    "devices/worker0.json": True,
    "summaries/worker0/events.out.tfevents.1.node1": True,
    "checkpoints/model.ckpt-5.data-00000-of-00001": True,
    "checkpoints/deep/er": False,
    "output/result.json": False,
    "events/worker1.jsonl": False,
    "devices/worker1.json": False,
    "summaries/worker1/events.out.tfevents.1.node1": False,
    "summaries/worker0/../../plan.json": False,
    "summaries/worker0/.hidden": False,
    "logs/ps0.out\n": False,
    "logs/../plan.json": False,
    "verdict.json": False,
    "collected.json": False,
    "other_hosts/n2/output/x": False,
    "../escape": False,
    "/etc/x": False,
}


def packed(path: Path, files: Sequence[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as stream:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            stream.addfile(member, io.BytesIO(content))
    return path


def bring(
    folder: Path, host: str, files: dict[str, str], *, tasks: Sequence[dict[str, str]] = OF_NODE1
) -> list[str]:
    """Collect a program's files of a host; return what was refused."""
    archive = packed(folder.parent / "a.tar.gz", [(name, text.encode()) for name, text in files.items()])
    allowed = allowed_files(tasks, "worker0", program=True)
    return unpack(archive, Places(folder, host, HOSTS, allowed), 1000)[1]


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("name", "wanted"), NAMES.items())
def test_a_host_brings_what_its_own_tasks_may_have_left(tmp_path: Path, name: str, *, wanted: bool) -> None:
    allowed = allowed_files(OF_NODE1, "worker0", program=False)
    folder = tmp_path / "runs" / "r1"
    archive = packed(tmp_path / "a.tar.gz", [(name, b"x")])
    names, refused = unpack(archive, Places(folder, "n1", HOSTS, allowed), 1000)
    assert names == ([name] if wanted else [])
    assert bool(refused) is not wanted
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path != archive]
    assert written == ([folder / name] if wanted else [])


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    with tarfile.open(archive, "w:gz") as stream:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE):
            link = tarfile.TarInfo("logs/ps0.out")
            link.type, link.linkname = kind, "/etc/passwd"
            stream.addfile(link)
    allowed = allowed_files(OF_NODE1, "worker0", program=False)
    names, refused = unpack(archive, Places(tmp_path / "r1", "n1", HOSTS, allowed), 1000)
    assert (names, len(refused)) == ([], 3)
    assert not (tmp_path / "r1" / "logs").exists()


def test_only_the_lead_brings_checkpoints() -> None:
    for program in (True, False):
        other = allowed_files([{"name": "worker1"}], "worker0", program=program)
        assert not other.own.fullmatch("checkpoints/x")
        assert other.shared is None or not other.shared.fullmatch("checkpoints/x")


def test_a_host_without_tasks_brings_nothing() -> None:
    nothing = allowed_files([], "worker0", program=True)
    assert nothing.shared is None
    assert not nothing.own.fullmatch("logs/.out")


def test_a_program_names_its_files_as_it_likes(tmp_path: Path) -> None:
    folder = tmp_path / "r1"
    files = dict.fromkeys(["output/a/b.csv", "summaries/train/x", "checkpoints/ckpt-1/data"], "1")
    assert bring(folder, "n1", files) == []
    assert content(folder).keys() == {*files, "collected.json"}


@pytest.mark.parametrize("order", [["n1", "n2", "n3"], ["n3", "n2", "n1"], ["n2", "n3", "n1", "n2", "n3"]])
def test_of_one_name_the_first_host_has_the_place_whoever_is_quicker(
    tmp_path: Path, order: list[str]
) -> None:
    folder = tmp_path / "r1"
    for host in order:
        assert bring(folder, host, {"output/x": f"of {host}", f"output/{host}": "1"}) == []
    found = content(folder)
    owners = json.loads(found.pop("collected.json"))
    assert owners == {"output/x": "n1", "output/n1": "n1", "output/n2": "n2", "output/n3": "n3"}
    assert found == {
        "output/x": "of n1",
        "output/n1": "1",
        "output/n2": "1",
        "output/n3": "1",
        "other_hosts/n2/output/x": "of n2",
        "other_hosts/n3/output/x": "of n3",
    }


def test_a_host_that_collects_again_brings_what_is_newer(tmp_path: Path) -> None:
    bring(tmp_path / "r1", "n2", {"output/x": "old and long"})
    bring(tmp_path / "r1", "n2", {"output/x": "new"})
    assert content(tmp_path / "r1")["output/x"] == "new"
    assert json.loads(content(tmp_path / "r1")["collected.json"]) == {"output/x": "n2"}


def test_a_file_in_the_way_of_a_folder_is_told(tmp_path: Path) -> None:
    bring(tmp_path / "r1", "n1", {"output/x": "1"})
    (refused,) = bring(tmp_path / "r1", "n2", {"output/x/y": "1"})
    assert "'output/x/y'" in refused


def test_a_host_with_an_odd_name_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    bring(tmp_path / "r1", "n1", {"output/x": "1"})
    bring(tmp_path / "r1", "../../n9", {"output/x": "2"})
    assert content(tmp_path / "r1")["other_hosts/__.._n9/output/x"] == "2"


def test_a_host_does_not_fill_the_disk(tmp_path: Path) -> None:
    (refused,) = bring(tmp_path / "r1", "n1", {"output/a": "1" * 600, "output/b": "1" * 600, "output/c": "1"})
    assert refused.startswith("'output/b' and what follows")
    assert "output/c" not in content(tmp_path / "r1")
