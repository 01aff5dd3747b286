import io
import tarfile
from pathlib import Path

from plugins.action.collect_run import members_of, unpack


def test_a_host_cannot_write_outside_its_part_of_the_folder(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    names = [
        "logs/ps0.out",
        "verdict.json",
        "../escape",
        "logs/../plan.json",
        "/etc/x",
        "events/worker0.jsonl",
        "events/worker1.jsonl",
        "checkpoints/x",
    ]
    with tarfile.open(archive, "w:gz") as stream:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 1
            stream.addfile(member, io.BytesIO(b"x"))
        link = tarfile.TarInfo("logs/ps0.out")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        stream.addfile(link)
    folder = tmp_path / "runs" / "r1"
    assert unpack(
        archive, folder, members_of([{"job": "ps", "index": 0}, {"job": "worker", "index": 0}])
    ) == [
        "logs/ps0.out",
        "events/worker0.jsonl",
        "checkpoints/x",
    ]
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        "checkpoints/x",
        "events/worker0.jsonl",
        "logs/ps0.out",
    ]
    assert not (tmp_path / "runs" / "escape").exists()


def test_only_the_chief_brings_checkpoints() -> None:
    assert not members_of([{"job": "worker", "index": 1}]).fullmatch("checkpoints/x")
    assert not members_of([]).fullmatch("logs/.out")
