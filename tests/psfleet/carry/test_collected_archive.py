import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from psfleet.carry import collected_archive
from psfleet.carry.collected_archive import most_archive_bytes, printable_lines, relative_state, unpack
from psfleet.carry.collected_files import Places, allowed_names, wanted_folders
from tests.psfleet.carry.brought_files import HOSTS, OF_NODE1, bring, content, packed, places_of

NAMES = {
    "logs/ps0.out": True,
    "events/worker0.jsonl": True,
    "devices/worker0.json": True,
    "logs/evaluator0.out": True,
    "events/evaluator0.jsonl": True,
    "summaries/evaluator0/events.out.tfevents.1.node1": True,
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


@pytest.mark.parametrize(("name", "wanted"), NAMES.items())
def test_only_files_that_the_hosts_own_tasks_may_leave_are_collected(
    tmp_path: Path, name: str, *, wanted: bool
) -> None:
    folder = tmp_path / "runs" / "r1"
    archive = packed(tmp_path / "a.tar.gz", [(name, b"x")])
    names, refused = unpack(archive, places_of(folder, program=False), 1000)
    assert names == ([name] if wanted else [])
    assert bool(refused) is not wanted
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path != archive]
    assert written == ([folder / name] if wanted else [])


def test_a_link_in_an_archive_is_not_followed(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    with tarfile.open(archive, "w:gz") as stream:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE):
            link = tarfile.TarInfo("logs/ps0.out")
            link.type, link.linkname = kind, "/etc/passwd"
            stream.addfile(link)
    names, refused = unpack(archive, places_of(tmp_path / "r1", program=False), 1000)
    assert (names, len(refused)) == ([], 3)
    assert not (tmp_path / "r1" / "logs").exists()


def test_a_further_name_of_an_earlier_file_of_the_archive_costs_nothing_more(tmp_path: Path) -> None:
    folder, archive = tmp_path / "r1", tmp_path / "a.tar.gz"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints/there").write_bytes(b"of another collection")
    links = [("checkpoints/second", "checkpoints/first"), ("checkpoints/third", "checkpoints/second")]
    links += [("checkpoints/x", name) for name in ("checkpoints/there", "checkpoints/../plan.json", "none")]
    links += [("plan.json", "checkpoints/first")]
    with tarfile.open(archive, "w:gz") as stream:
        member = tarfile.TarInfo("checkpoints/first")
        member.size = 600
        stream.addfile(member, io.BytesIO(b"x" * member.size))
        for name, twin in links:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.LNKTYPE, twin
            stream.addfile(link)
    names, refused = unpack(archive, places_of(folder, program=False), 1000)
    assert names == ["checkpoints/first", "checkpoints/second", "checkpoints/third"]
    assert [line.partition(":")[0] for line in refused] == ["'checkpoints/x'"] * 3 + ["'plan.json'"]
    assert refused[0].endswith("a link to 'checkpoints/there', which is no earlier file of the archive")
    assert len({(folder / name).stat().st_ino for name in names}) == 1
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"first", "second", "third", "there"}


def test_only_the_leads_host_brings_checkpoints_and_their_evaluation() -> None:
    for program in (True, False):
        other = allowed_names([{"name": "worker1"}], "worker0", program=program)
        assert not other.own.fullmatch("checkpoints/x")
        assert not other.own.fullmatch("events/evaluator0.jsonl")
        assert other.shared is None or not other.shared.fullmatch("checkpoints/x")
    # The models of a program are not evaluated.
    assert not allowed_names(OF_NODE1, "worker0", program=True).own.fullmatch("events/evaluator0.jsonl")


def test_each_host_brings_its_own_saves_and_the_leads_checkpoints_become_those_of_the_run(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "r1"
    of_worker1 = allowed_names([{"name": "worker1"}], "worker0", program=True)
    files = {"checkpoints/model.ckpt-9.index": "1", "saved/worker1/tmp/x": "2", "saves/worker1.jsonl": "3"}
    foreign = {
        "saved/worker0/tmp/x": "4",
        "saved/worker1/.ssh/x": "5",
        "saved/x": "6",
        "saves/ps0.jsonl": "7",
    }
    every = [(name, text.encode()) for name, text in {**files, **foreign}.items()]
    archive = packed(tmp_path / "a.tar.gz", every)
    names, refused = unpack(archive, Places(folder, "n2", HOSTS, of_worker1), 1000)
    assert names == [*files]
    assert bring(folder, "n1", {"checkpoints/model.ckpt-8.index": "8", "saved/worker0/tmp/x": "9"}) == []
    assert content(folder) == {
        "other_hosts/n2/checkpoints/model.ckpt-9.index": "1",
        "saved/worker1/tmp/x": "2",
        "saves/worker1.jsonl": "3",
        "checkpoints/model.ckpt-8.index": "8",
        "saved/worker0/tmp/x": "9",
        "collected.json": "{}\n",
    }
    of_another = "it belongs to no task of this host"
    named = (
        "it stays on the host: names have letters, digits and _.=,+@-, and no part of a path begins with a "
        "sign other than _, and are not too long or deep"
    )
    assert [line.partition(": ")[2] for line in refused] == [of_another, named, of_another, of_another]


def test_only_hosts_that_may_send_checkpoints_are_asked_for_them() -> None:
    of_ps = [{"name": "ps0"}]
    assert wanted_folders(OF_NODE1, "worker0", program=False) == []
    assert wanted_folders(of_ps, "worker0", program=True) == []
    asked = wanted_folders(of_ps, "worker0", program=False)
    allowed = allowed_names(of_ps, "worker0", program=False)
    kept = {name.partition("/")[0] for name in NAMES if allowed.own.fullmatch(name.replace("worker0", "ps0"))}
    assert kept == {*asked}


def test_a_host_without_tasks_brings_nothing() -> None:
    nothing = allowed_names([], "worker0", program=True)
    assert nothing.shared is None
    assert not nothing.own.fullmatch("logs/.out")


def test_files_of_a_program_may_have_any_safe_name(tmp_path: Path) -> None:
    folder = tmp_path / "r1"
    files = dict.fromkeys(["output/a/b.csv", "summaries/train/x", "checkpoints/ckpt-1/data"], "1")
    assert bring(folder, "n1", files) == []
    assert content(folder).keys() == {*files, "collected.json"}


@pytest.mark.parametrize("order", [["n1", "n2", "n3"], ["n3", "n2", "n1"], ["n2", "n3", "n1", "n2", "n3"]])
def test_a_name_that_several_hosts_use_belongs_to_the_first_host_in_any_order_of_arrival(
    tmp_path: Path, order: list[str]
) -> None:
    folder = tmp_path / "r1"
    for host in order:
        files = {"output/x": f"x of {host}", "output/y": f"y of {host}", f"output/{host}": host}
        assert bring(folder, host, files) == []
    found = content(folder)
    owners = json.loads(found.pop("collected.json"))
    assert owners == {"output/x": "n1", "output/y": "n1", **{f"output/{host}": host for host in HOSTS}}
    firsts = {f"output/{name}": f"{name} of n1" for name in "xy"} | {f"output/{host}": host for host in HOSTS}
    others = {f"other_hosts/{host}/output/{name}": f"{name} of {host}" for host in HOSTS[1:] for name in "xy"}
    assert found == firsts | others


def test_a_file_is_read_whole_while_it_is_collected_again(tmp_path: Path) -> None:
    bring(tmp_path / "r1", "n1", {"output/x": "old and long"})
    with (tmp_path / "r1" / "output" / "x").open() as file:
        bring(tmp_path / "r1", "n1", {"output/x": "new"})
        assert file.read() == "old and long"
    assert [path.name for path in (tmp_path / "r1" / "output").iterdir()] == ["x"]


@pytest.mark.parametrize("order", [["n1", "n2"], ["n2", "n1"], ["n2", "n1", "n2", "n1"]])
@pytest.mark.parametrize(
    "names", [("output/x", "output/x/y"), ("output/x/y", "output/x"), ("output/a/b/c/d", "output/a")]
)
def test_no_host_blocks_the_names_of_one_before_it(
    tmp_path: Path, order: list[str], names: tuple[str, str]
) -> None:
    of_host = dict(zip(["n1", "n2"], names, strict=True))
    for host in order:
        assert bring(tmp_path / "r1", host, {of_host[host]: host, f"output/{host}": host}) == []
    found = content(tmp_path / "r1")
    owners = json.loads(found.pop("collected.json"))
    assert owners == {names[0]: "n1", "output/n1": "n1", "output/n2": "n2"}
    assert found == {
        names[0]: "n1",
        f"other_hosts/n2/{names[1]}": "n2",
        "output/n1": "n1",
        "output/n2": "n2",
    }


def test_a_name_that_is_twice_in_an_archive_counts_once(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar.gz", [("output/x", b"1"), ("output/x", b"2"), ("output/y", b"3")])
    names, refused = unpack(archive, places_of(tmp_path / "r1"), 1000)
    assert (names, refused) == (["output/x", "output/y"], ["'output/x': it is in the archive twice"])
    assert content(tmp_path / "r1")["output/x"] == "1"


def test_a_host_with_an_unsafe_name_gets_a_folder_with_a_safe_name(tmp_path: Path) -> None:
    bring(tmp_path / "r1", "n1", {"output/x": "1"})
    bring(tmp_path / "r1", "../../n9", {"output/x": "2"})
    assert content(tmp_path / "r1")["other_hosts/__.._n9/output/x"] == "2"


def test_the_size_of_the_files_of_a_host_is_limited(tmp_path: Path) -> None:
    assert bring(tmp_path / "r0", "n1", {"output/a": "1" * 1000, "output/b": ""}) == []
    (refused,) = bring(tmp_path / "r1", "n1", {"output/a": "1" * 600, "output/b": "1" * 600, "output/c": "1"})
    assert refused.startswith("'output/b' and everything after it")
    assert "output/c" not in content(tmp_path / "r1")


def test_refused_files_count_towards_the_limit(tmp_path: Path) -> None:
    (refused,) = bring(tmp_path / "r1", "n1", {"secret": "1" * 2000, "output/a": "1"})
    assert refused.startswith("'secret' and everything after it")
    assert "output/a" not in content(tmp_path / "r1")


def test_the_number_of_files_of_a_host_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collected_archive, "MOST_MEMBERS", 3)
    (refused,) = bring(tmp_path / "r1", "n1", {f"output/{name}": "" for name in "abcde"})
    assert refused.startswith("'output/d' and everything after it: more than 3 files")


@pytest.mark.parametrize("length", [255, 256, 5000])
def test_a_file_name_that_is_too_long_is_refused(tmp_path: Path, length: int) -> None:
    long = f"output/{'x' * length}"
    refused = bring(tmp_path / "r1", "n1", {long: "1", "output/a": "1"})
    assert [entry.partition(": ")[2] for entry in refused] == (
        [] if length == 255 else [places_of(tmp_path).refusal(long)]
    )
    assert "output/a" in content(tmp_path / "r1")


def test_complete_files_of_a_damaged_archive_are_collected(tmp_path: Path) -> None:
    folder, whole = tmp_path / "r1", io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as stream:
        for name in ("output/a", "output/b"):
            member = tarfile.TarInfo(name)
            member.size = 300
            stream.addfile(member, io.BytesIO(b"1" * 300))
    archives = {
        "cut tar": gzip.compress(whole.getvalue()[:1700]),
        "cut gzip": gzip.compress(whole.getvalue(), 0)[:1700],
        "no gzip": b"nothing",
        "gzip of another": gzip.compress(b"x" * 2000),
        "bad block": gzip.compress(whole.getvalue(), 0)[:20] + b"\xff" * 2000,
        "empty": b"",
    }
    for kind, data in archives.items():
        (tmp_path / "a.tar.gz").write_bytes(data)
        names, refused = unpack(tmp_path / "a.tar.gz", places_of(folder / kind), 10_000)
        assert names == (["output/a"] if kind.startswith("cut") else []), kind
        assert "damaged" in refused[-1] or "unexpected" in refused[-1], refused
        written = content(folder / kind)
        owners = json.loads(written.pop("collected.json"))
        assert list(written) == names
        assert set(names) <= set(owners)


def test_the_limits_leave_room_for_headers_and_for_files_larger_than_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = packed(tmp_path / "a.tar.gz", [(f"output/{'x' * 200}{number}", b"") for number in range(500)])
    assert archive.stat().st_size < most_archive_bytes(0)
    assert most_archive_bytes(10**9) == 10**9 + 10**7 + 40_960_000
    monkeypatch.setattr(collected_archive, "MOST_MEMBERS", 3)
    archive = packed(tmp_path / "a.tar.gz", [(f"output/{number}", b"x" * 50_000) for number in range(3)])
    assert len(unpack(archive, places_of(tmp_path / "r1"), 150_000)[0]) == 3


def test_messages_of_a_host_are_shortened_and_made_printable() -> None:
    lines = printable_lines(["a\nb\x1b[2J", "x" * 10_000, *map(str, range(100))])
    assert lines[0] == "a\\nb\\x1b[2J"
    assert len(lines) == collected_archive.MOST_SHOWN + 1
    assert max(map(len, lines)) == collected_archive.LONGEST_SHOWN
    assert lines[-1] == "and 81 more"
    assert printable_lines(["a"]) == ["a"]


def test_the_owners_of_files_are_written_also_if_collecting_is_interrupted(tmp_path: Path) -> None:
    places = places_of(tmp_path / "r1", "n2")
    (tmp_path / "fresh").write_text("x")
    with pytest.raises(KeyboardInterrupt), places.locked():
        places.put(tmp_path / "fresh", "output/x")
        raise KeyboardInterrupt
    assert json.loads(content(tmp_path / "r1")["collected.json"]) == {"output/x": "n2"}


@pytest.mark.parametrize("folder", ["saved/worker0/tmp/logs", "checkpoints"])
def test_the_checkpoint_state_is_rewritten_to_relative_paths(tmp_path: Path, folder: str) -> None:
    newest, older = (f'paths: "/tmp/logs/model.ckpt-{step}"\n' for step in (9, 5))
    state = f'model_checkpoint_path: "/tmp/logs/model.ckpt-9"\nall_model_checkpoint_{older}'
    state += f"all_model_checkpoint_{newest}last_preserved_timestamp: 1.5\n"
    note = 'all_model_checkpoint_paths: "/tmp/x"'
    assert bring(tmp_path / "r1", "n1", {f"{folder}/checkpoint": state, f"{folder}/note": note}) == []
    assert (tmp_path / "r1" / folder / "checkpoint").read_text() == state.replace("/tmp/logs/", "")
    assert (tmp_path / "r1" / folder / "note").read_text() == note


def test_a_checkpoint_state_with_relative_or_invalid_paths_stays_unchanged() -> None:
    for state in (b'model_checkpoint_path: "a-1"\n', b'x model_checkpoint_path: "/a/b"\n', b"\xff\0/", b""):
        assert relative_state(state) == state
