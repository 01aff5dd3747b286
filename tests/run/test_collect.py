import io
import tarfile
from pathlib import Path

from plugins.action.collect_run import unpack


def test_a_host_cannot_write_outside_its_part_of_the_folder(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    names = [
        "logs/ps0.out",
        "verdict.json",
        "../escape",
        "logs/../plan.json",
        "/etc/x",
        "events/worker0.jsonl",
    ]
    with tarfile.open(archive, "w:gz") as stream:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 1
            stream.addfile(member, io.BytesIO(b"x"))
        link = tarfile.TarInfo("logs/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        stream.addfile(link)
    folder = tmp_path / "runs" / "r1"
    assert unpack(archive, folder) == ["logs/ps0.out", "events/worker0.jsonl"]
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        "events/worker0.jsonl",
        "logs/ps0.out",
    ]
    assert not (tmp_path / "runs" / "escape").exists()
