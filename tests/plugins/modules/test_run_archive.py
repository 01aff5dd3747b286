"""Which files of a run are packed, by the step on a host with hostile files."""

import json
import os
import socket
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import chdir, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from plugins.action.collect_run import ARCHIVE
from plugins.module_utils.tasks import run_archive
from plugins.modules import host_runs
from tests.plugins.modules.module_run import module_answer

OF_R1 = "state/runs/r1"


def written(root: Path, *names: str, size: int = 1) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * size)


def answered(root: Path, run_id: str = "r1", limit_megabytes: int = 1, **others: Any) -> dict[str, Any]:  # noqa: ANN401
    paths = {"state_directory": f"{root}/state", "log_directory": f"{root}/log"}
    asked: dict[str, Any] = {"limit_megabytes": limit_megabytes, "paths": paths, "owner": os.geteuid()}
    return module_answer(host_runs, state="packed", run_id=run_id, **asked | others)


def packed(root: Path, run_id: str = "r1", **others: Any) -> tuple[list[str], list[str]]:  # noqa: ANN401
    """Return the names of the packed files, and the entries left out."""
    answer = answered(root, run_id, **others)
    archive = Path(answer["path"])
    try:
        assert archive.parent == Path("/var/tmp")
        assert stat.S_IMODE(archive.stat().st_mode) == 0o600
        assert answer["size"] == archive.stat().st_size
        with tarfile.open(archive, "r:gz") as stream:
            members = stream.getmembers()
            assert all(stream.extractfile(member) for member in members)
    finally:
        archive.unlink()
    assert answer["files"] == len(members)
    return [member.name for member in members], answer["left_out"]


def test_only_event_files_are_packed_on_request(tmp_path: Path) -> None:
    events = ["checkpoints/events.out.tfevents.3", "output/tb/events.out.tfevents.2", "summaries/e.tfevents"]
    beside = ["checkpoints/model.ckpt-5.index", "output/tfevents/large.csv", "events/worker0.jsonl"]
    written(tmp_path, *(f"{OF_R1}/{name}" for name in (*events, *beside)))
    folders = ["summaries", "output", "checkpoints"]
    assert packed(tmp_path, folders=folders, only="tfevents") == ([events[2], events[1], events[0]], [])


def test_the_archive_contains_only_files_of_the_run(tmp_path: Path) -> None:
    wanted = [
        "events/worker0.jsonl",
        "logs/ps0.out",
        "devices/worker0.json",
        "checkpoints/model.ckpt-5.index",
    ]
    wanted += ["summaries/worker0/events.out.tfevents.1", "output/a/b/c.csv", "output/tempstate.csv"]
    written(tmp_path, *(f"{OF_R1}/{name}" for name in wanted if name != "logs/ps0.out"), "log/r1/ps0.out")
    written(tmp_path, "log/r2/ps0.out", f"{OF_R1}/progress.json", "secret")
    # Unfinished saves.
    written(tmp_path, f"{OF_R1}/checkpoints/model.ckpt-9.tempstate1", f"{OF_R1}/checkpoints/a/x.tempstate2")
    (tmp_path / "log/r1/link.out").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / OF_R1 / "output/fifo")
    # The path of a socket may not be long.
    with chdir(tmp_path / OF_R1 / "output"), socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    names, left_out = packed(tmp_path)
    assert names == wanted
    assert left_out == [
        "logs/link.out: a link, or no file",
        "output/fifo: no file, or deeper than 8 folders",
        "output/socket: a link, or no file",
    ]
    assert packed(tmp_path, folders=["summaries"]) == ([wanted[4]], [])
    checked = answered(tmp_path, check=True)
    assert (checked["path"], checked["files"], checked["changed"]) == ("", 0, False)
    assert packed(tmp_path, "r3") == ([], [])


def noted(root: Path, task: str, *places: object, kind: str = "checkpoint") -> None:
    lines = [json.dumps({"path": place, "kind": kind}) for place in places]
    written(root, f"{OF_R1}/saves/{task}.jsonl")
    (root / OF_R1 / f"saves/{task}.jsonl").write_text("\n".join([*lines, "no note", ""]))


def test_saves_outside_the_run_folder_are_packed_by_task(tmp_path: Path) -> None:
    tmp = "state/runs/.tmp/r1"
    wanted = [f"{tmp}/worker0/logs/model.ckpt-5.index", f"{tmp}/worker0/logs/deep/er"]
    wanted += [f"{tmp}/worker0/alone.ckpt-7.index", f"{tmp}/worker0/checkpoint", f"{OF_R1}/model.keras"]
    wanted += [f"{tmp}/ps0/m/saved_model.pb", f"{tmp}/worker0/tables/1", f"{tmp}/ps0/tables/2"]
    others = [f"{tmp}/worker0/junk", f"{tmp}/worker0/alone2", f"{tmp}/worker1/logs/x", "state/secret"]
    others += [f"{tmp}/worker0/logs/model.ckpt-9.tempstate1", f"{OF_R1}/progress.json"]
    written(tmp_path, *wanted, *others, f"{OF_R1}/results/3", f"{OF_R1}/checkpoints/x")
    noted(tmp_path, "worker0", "/tmp/logs", "/tmp/logs/deep", "/tmp/alone.ckpt", "model.keras", "checkpoints")
    noted(tmp_path, "ps0", "/var/tmp/m", "/dev/shm/lost", "gs://bucket/there", "model.keras", "/tmp/gone")
    asked: dict[str, Any] = {"names": ["worker0", "ps0"], "collect": ["/tmp/tables", "results"]}
    names, left_out = packed(tmp_path, folders=["saved"], **asked)
    assert sorted(names) == [
        "saved/ps0/tmp/m/saved_model.pb",
        "saved/ps0/tmp/tables/2",
        "saved/worker0/model.keras",
        "saved/worker0/results/3",
        "saved/worker0/tmp/alone.ckpt-7.index",
        "saved/worker0/tmp/checkpoint",
        "saved/worker0/tmp/logs/deep/er",
        "saved/worker0/tmp/logs/model.ckpt-5.index",
        "saved/worker0/tmp/tables/1",
    ]
    assert left_out == ["/dev/shm/lost: ps0 saved there, and it was deleted when the task ended"]


def test_only_the_own_files_of_a_model_in_a_shared_folder_are_packed(tmp_path: Path) -> None:
    tmp = "state/runs/.tmp/r1/worker0"
    model = ["saved_model.pb", "variables/variables.index", "assets/words"]
    others = [f"{tmp}/junk", f"{OF_R1}/progress.json", f"{OF_R1}/events/worker0.jsonl"]
    written(tmp_path, *(f"{folder}/{name}" for folder in (tmp, OF_R1) for name in model), *others)
    (tmp_path / tmp / "assets.extra").symlink_to(tmp_path / "state")
    written(tmp_path, f"{tmp}/logs/model.ckpt-5.index")
    noted(tmp_path, "worker0", "/tmp", "/var/tmp", ".", "/tmp/logs", kind="SavedModel")
    names, left_out = packed(tmp_path, folders=["saved"], names=["worker0"])
    wanted = [f"saved/worker0{folder}/{name}" for folder in ("", "/tmp") for name in model]
    assert sorted(names) == sorted([*wanted, "saved/worker0/tmp/logs/model.ckpt-5.index"])
    assert left_out == ["saved/worker0/tmp/assets.extra: a link, or no file"]


@pytest.mark.parametrize("kind", ["checkpoint", "SavedModel"])
@pytest.mark.parametrize(
    "place",
    [
        *("../../secret", "/tmp/../../../../secret", "/tmp/..", "..", ".", "/tmp", "/tmp/", "", "/", "\0"),
        *("/tmp/a\0b", "/tmp/to_secret", "/tmp/to_secret/x", "to_secret/x", "x" * 100_000, 7, None, ["/tmp"]),
    ],
)
def test_no_note_makes_root_read_outside_the_tasks_folders(tmp_path: Path, place: object, kind: str) -> None:
    tmp = "state/runs/.tmp/r1/worker0"
    written(tmp_path, f"{tmp}/x", "secret/x", "state/secret/x")
    for folder in (tmp, OF_R1):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "to_secret").symlink_to(tmp_path / "secret")
    noted(tmp_path, "worker0", place, kind=kind)
    names, _ = packed(tmp_path, names=["worker0"])
    assert names == ["saves/worker0.jsonl"]


def test_no_part_of_a_path_may_be_a_link(tmp_path: Path) -> None:
    written(tmp_path, "secret/events/worker0.jsonl", "secret/worker0.out", f"{OF_R1}/output/x", "log/r1/x")
    (tmp_path / OF_R1 / "events").symlink_to(tmp_path / "secret/events")
    (tmp_path / OF_R1 / "output/deep").symlink_to(tmp_path / "secret/events")
    (tmp_path / "state/runs/r2").symlink_to(tmp_path / "secret")
    (tmp_path / "log/r2").symlink_to(tmp_path / "secret")
    names, left_out = packed(tmp_path)
    assert names == ["logs/x", "output/x"]
    assert left_out[0].startswith("events: events in runs/r1/events is not a directory, or a link")
    assert left_out[1:] == ["output/deep: a link, or no file"]
    names, left_out = packed(tmp_path, "r2")
    assert names == []
    # Saves outside the run folder were not requested.
    assert [entry.partition(":")[0] for entry in left_out] == [
        name for name in run_archive.FOLDERS if name != "saved"
    ]


def test_files_beyond_the_limit_are_left_out_and_named(tmp_path: Path) -> None:
    written(tmp_path, f"{OF_R1}/events/a", f"{OF_R1}/output/c", size=400_000)
    written(tmp_path, f"{OF_R1}/devices/b", size=2_000_000)
    written(tmp_path, f"{OF_R1}/output/d", size=200_000)
    written(tmp_path, f"{OF_R1}/output/e", size=200_001)
    names, left_out = packed(tmp_path)
    assert names == ["events/a", "output/c", "output/d"]  # to the last byte
    assert left_out == [
        "devices/b: 2.0 MB, above the limit for one host, training_run_collect_megabytes",
        "output/e: 200.0 kB, above the limit for one host, training_run_collect_megabytes",
    ]


def test_the_limit_leaves_out_older_checkpoints_first(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        written(tmp_path, f"{OF_R1}/checkpoints/model.ckpt-{step}.tables_16.0-of-1.00000.rows", size=400_000)
    written(tmp_path, f"{OF_R1}/checkpoints/checkpoint")
    names, left_out = packed(tmp_path)
    assert [name for name in names if name.endswith(("checkpoint", ".rows"))] == [
        "checkpoints/checkpoint",
        "checkpoints/model.ckpt-100.tables_16.0-of-1.00000.rows",
        "checkpoints/model.ckpt-10.tables_16.0-of-1.00000.rows",
    ]
    (left,) = left_out
    assert left.startswith("checkpoints/model.ckpt-9.")


def test_a_file_that_checkpoints_share_is_packed_and_counted_once(tmp_path: Path) -> None:
    written(tmp_path, f"{OF_R1}/checkpoints/model.ckpt-9.rows", size=900_000)
    for step in (10, 100):
        (tmp_path / OF_R1 / f"checkpoints/model.ckpt-{step}.rows").hardlink_to(
            tmp_path / OF_R1 / "checkpoints/model.ckpt-9.rows"
        )
    answer = answered(tmp_path)
    with tarfile.open(answer["path"], "r:gz") as stream:
        found = {member.name: (member.size, member.linkname) for member in stream}
    Path(answer["path"]).unlink()
    newest = "checkpoints/model.ckpt-100.rows"
    others = {f"checkpoints/model.ckpt-{step}.rows": (0, newest) for step in (10, 9)}
    assert found == {newest: (900_000, ""), **others}
    assert (answer["files"], answer["left_out"]) == (3, [])


def test_the_number_of_files_and_the_depth_of_folders_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, f"{OF_R1}/output/{'d/' * 8}x", f"{OF_R1}/output/{'e/' * 9}x")
    before = len([*Path("/proc/self/fd").iterdir()])
    names, left_out = packed(tmp_path)
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    assert names == [f"output/{'d/' * 8}x"]
    assert left_out == [f"output/{'e/' * 9}".rstrip("/") + ": no file, or deeper than 8 folders"]
    monkeypatch.setattr(run_archive, "MOST_FILES", 2)
    written(tmp_path, *(f"{OF_R1}/events/{number}" for number in range(30)))
    names, left_out = packed(tmp_path)
    assert names == ["events/0", "events/1"]
    assert left_out[0] == "events/10: above the limit of 2 files from one host"
    assert (len(left_out), left_out[-1]) == (21, "and 10 more")


def test_a_hostile_file_name_is_made_printable(tmp_path: Path) -> None:
    (tmp_path / OF_R1 / "output").mkdir(parents=True)
    (tmp_path / OF_R1 / "output" / "a\x1b[2J").symlink_to("x")
    assert packed(tmp_path)[1] == ["output/a\\x1b[2J: a link, or no file"]


def test_a_file_that_shrinks_while_it_is_packed_is_named_and_the_others_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, f"{OF_R1}/events/a", f"{OF_R1}/events/b", f"{OF_R1}/output/c", size=300_000)
    whole = tarfile.TarFile.addfile

    def addfile(archive: tarfile.TarFile, member: tarfile.TarInfo, stream: IO[bytes]) -> None:
        if member.name == "events/a":  # its size has been read
            os.truncate(tmp_path / OF_R1 / "events/a", 100_000)
        if member.name == "events/b":
            with (tmp_path / OF_R1 / "events/b").open("ab") as file:
                file.write(b"more")
        whole(archive, member, stream)

    monkeypatch.setattr(tarfile.TarFile, "addfile", addfile)
    answer = answered(tmp_path)
    with tarfile.open(answer["path"], "r:gz") as stream:
        content = {member.name: stream.extractfile(member).read() for member in stream}  # type: ignore[union-attr]
    Path(answer["path"]).unlink()
    assert content == {
        "events/a": b"x" * 100_000 + bytes(200_000),
        **dict.fromkeys(("events/b", "output/c"), b"x" * 300_000),
    }
    assert answer["left_out"] == ["events/a: changed while it was read: zeros stand for 200.0 kB of it"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_archive_belongs_to_the_connecting_user(tmp_path: Path) -> None:
    archive = Path(answered(tmp_path, owner=65534)["path"])
    assert archive.stat().st_uid == 65534
    archive.unlink()


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own without room, in place of /var/tmp."""
    if os.geteuid():
        pytest.skip("only root can mount one")
    place = tmp_path / "full"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", place], check=True)
    with suppress(OSError):
        (place / "taken").write_bytes(bytes(8192))
    yield place
    subprocess.run(["umount", place], check=True)


def test_on_a_full_disk_the_records_are_packed_in_memory(
    tmp_path: Path, full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, f"{OF_R1}/events/worker0.jsonl", f"{OF_R1}/checkpoints/large", size=900_000)
    monkeypatch.setattr(run_archive, "PLACES", {str(full): 10**9, "/dev/shm": 1})
    answer = answered(tmp_path, limit_megabytes=2000)
    archive = Path(answer["path"])
    with tarfile.open(archive, "r:gz") as stream:
        names = stream.getnames()
    archive.unlink()
    assert (archive.parent, names) == (Path("/dev/shm"), ["events/worker0.jsonl"])
    assert ARCHIVE.fullmatch(str(archive))
    assert answer["left_out"] == [
        "checkpoints/large: 900.0 kB, above the limit for one host, 1 MB in /dev/shm"
    ]
    said = f"{full} has 0 bytes free (No space left on device): packed in /dev/shm instead"
    assert answer["warnings"] == [f"{said}, its records before all else"]
    assert [path.name for path in full.iterdir()] == ["taken"]


def test_every_place_without_space_is_named(
    tmp_path: Path, full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, f"{OF_R1}/events/worker0.jsonl", size=100)
    monkeypatch.setattr(run_archive, "PLACES", {str(full): 10**9, f"{tmp_path}/none": 1})
    answer = answered(tmp_path)
    assert answer["failed"]
    assert answer["msg"] == (
        f"the files of the run could not be packed: {full} has 0 bytes free (No space left on device); "
        f"{tmp_path}/none has 0 bytes free (No such file or directory)"
    )
