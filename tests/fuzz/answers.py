"""The readers of hosts' answers during a run and of collected archives, with a valid input for each."""

import gzip
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from hypothesis import strategies as st

from plugins.module_utils.checks.clock_checks import clock_finding, clock_offset
from psfleet.carry.collected_archive import printable_lines, unpack
from psfleet.carry.collected_files import Places, allowed_names
from psfleet.evidence.packed_run import unpacked_run as unpacked_packed_run
from psfleet.run.active_runs import RefusedError, run_to_stop, tasks_to_stop, unstopped_message
from psfleet.run.host_answers import FACTS, UnusableError, checked
from psfleet.run.start import Folder, decide
from psfleet.watch.console import PlaybookConsole
from psfleet.watch.doctor_findings import Findings
from psfleet.watch.doctor_table import doctor_table
from psfleet.watch.lead_reading import Reading, age_of
from psfleet.watch.live_block import block_rows, log_line
from psfleet.watch.runs import RunList, RunRow
from psfleet.watch.runs_table import runs_table
from psfleet.watch.screen_text import clock
from psfleet.watch.status import ClusterStatus
from psfleet.watch.status_table import status_table
from psfleet.watch.watched_run import WatchedRun
from tests.fuzz.damage import damaged, with_fitting_hashes
from tests.fuzz.search import Reader
from tests.plugins.module_utils.described import DESCRIBED
from tests.psfleet.report.made_runs import make_plan
from tests.psfleet.run.test_host_answers import ANSWERS, OF_ALL, SPECIAL
from tests.psfleet.watch import test_peer_findings as peers
from tests.psfleet.watch.played_runs import MISSING, decided_run
from tests.psfleet.watch.test_doctor_findings import answer as answer_of_doctor
from tests.psfleet.watch.test_status import TRAINING, stepping, task
from trainer.contract.progress import Progress
from trainer.contract.run_tasks import run_tasks
from trainer.contract.settings import TrainingSettings

RUN_ID = "night-1"
PLAN = make_plan()
SEPARATOR = "--psfleet--"
UNIT = b"ActiveState=active\nJob=\nNRestarts=1\nExecMainStartTimestampMonotonic=90000000\n"
UNIT += b"--psfleet--\n100.5 33.0\n"
MOST_BYTES = 1_000_000  # of all files that a host brings
PROGRESS = {"run_id": RUN_ID, "wall": 1.8e9, **TRAINING, "contributions": [25, 25], "restarts": [0, 1]}
PROGRESS |= {"missing": [MISSING], "reason": "waits"}
DOCTORS = dict.fromkeys(("node0", "node1"), answer_of_doctor(listened=True, began=1.8e9, ended=1.8e9 + 2))
PEERS = {
    f"{host} {state}": said for host, of in peers.cluster(2).items() for state, said in of["peers"].items()
}
RUNS = {
    f"node{host}": {
        "runs": [
            {"run_id": run, "size": 10**6, "changed": 1.8e9, "global_step": 5 * host}
            for run in ("r1", RUN_ID)
        ]
    }
    for host in range(2)
}
ASKED = {"tasks": [], "others": True, "details": True}


def of_answers(name: str, sample: Mapping[str, Any], read: Callable[[Any], object]) -> Reader:
    """The reader of the objects that Ansible has made of what each host's modules have printed."""

    def read_answers(content: bytes) -> None:
        try:
            answers = json.loads(content)
        except (ValueError, RecursionError):  # of which Ansible says that it is none
            return
        if isinstance(answers, dict) and all(isinstance(answer, dict) for answer in answers.values()):
            read(dict(zip(sample, answers.values(), strict=False)))  # the inventory names the hosts

    text = json.dumps({host: whole(answer) for host, answer in sample.items()}).encode()
    return Reader(name, text, damaged(text).map(with_fitting_hashes), read_answers)


def whole(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer with all that one may hold beside what its module says."""
    return {**SPECIAL, **OF_ALL, **answer}


def answers_of_tasks() -> dict[str, Any]:
    """Host -> what trainer_tasks says there of a run that goes on, its last words and figures among it."""
    tasks: dict[str, list[dict[str, Any]]] = {}
    counted: dict[str, Any] = {
        "ended_by": "",
        "phase": "training",
        "bytes_received": None,
        "bytes_sent": None,
    }
    for of in PLAN.tasks:
        more = (
            stepping(progress=PROGRESS) if of == PLAN.chief else {"memory_bytes": 2**29, "cpu_seconds": 1.5}
        )
        tasks.setdefault(of.host, []).append(task(of.name, **counted, **more, run_id=RUN_ID))
    of_host = {
        "deployed": PLAN.to_json(),
        "deployed_by": "ana@desk",
        "tensorflow": "2.21.0",
        "lacks_cuda": False,
        "unfenced": "",
        "release": "0" * 12,
        "environment": "1" * 12,
        "programs": ["2" * 12],
        "program_environments": {"3" * 12: "4" * 12},
        "holds_run": False,
        "checks": [],
    }
    return {host: {**of_host, "looked": 3.5, "stopped": {}, "tasks": told} for host, told in tasks.items()}


def taken(module: str, answers: Mapping[str, Any], asked: Mapping[str, Any] = ASKED) -> dict[str, Any]:
    """Return the answers that are some; of the others what the actions for people return."""
    return {host: kept(module, answer, asked) for host, answer in answers.items()}


def kept(module: str, answer: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of an answer, which is nothing that Ansible would act on; or the `problem`."""
    try:
        found = checked(module, answer, asked)
    except (RecursionError, UnusableError) as error:
        return {"problem": str(error)}
    allowed = {
        *OF_ALL,
        "ansible_facts",
        *ANSWERS.get(f"{module} {asked.get('state')}", ANSWERS.get(module, {})),
    }
    assert found.keys() <= allowed, found.keys() - allowed
    json.dumps(found, ensure_ascii=False).encode()
    return {"problem": found["msg"] if found.get("failed") else "", **found}


# What a deployment asks of a host before anything is changed there.
LOOK: Mapping[str, Any] = {
    **{"found": ASKED, "requirements": {}, "gpus": {}, "identity": {}},
    "systems": DESCRIBED,
}


def printed(content: bytes) -> None:
    """Read what a host prints in place of the answer to `host_facts`."""
    try:
        told = json.loads(content)
    except (RecursionError, ValueError):
        return
    if isinstance(told, dict):  # nor does Ansible take anything else for an answer
        kept("host_facts", told, LOOK)


def print_of_a_host() -> bytes:
    """What a host prints that is looked at."""
    parts = {f"psfleet_{part}": whole(ANSWERS[kind]) for part, kind in FACTS.items()}
    return json.dumps({"ansible_facts": parts}).encode()


def shown_status(answers: Mapping[str, Any]) -> None:
    status = ClusterStatus.of(PLAN.to_json(), taken("trainer_tasks", answers))
    for columns in (0, 80):
        console = PlaybookConsole(columns)
        assert all(text.isprintable() for text in console.lines(*status_table(status, console, verbose=True)))


def shown_runs(answers: Mapping[str, Any]) -> None:
    here = [RunRow(RUN_ID, here=7, began=1.8e9), RunRow("r3", "linear", 7, "proven", "yes", 1.8e9, 7)]
    found = RunList.of(here, taken("host_runs", answers, {"state": "listed"}))
    for columns in (0, 40):
        console = PlaybookConsole(columns)
        assert all(text.isprintable() for text in console.lines(*runs_table(found, console, verbose=True)))


def decided(answers: Mapping[str, Any]) -> None:
    """Decide what train.yml does with a run on these hosts, and what stop.yml ends."""
    told = taken("trainer_tasks", answers)
    found = {host: answer for host, answer in told.items() if not answer["problem"]}
    tasks = [{"name": of.name, **vars(of)} for of in run_tasks(PLAN, TrainingSettings(), program=False)]
    for of_folder in (Folder(), Folder("running", PLAN.hash)):
        with suppress(RefusedError):
            decide(RUN_ID, PLAN.to_json(), tasks, found, of_folder)
    with suppress(RefusedError):
        tasks_to_stop(run_to_stop(found), tasks, found)
    unstopped_message(tasks, found)


def shown_findings(answers: Mapping[str, Any]) -> None:
    found = taken("host_doctor", answers)
    for told in found.values():
        if "checks" in told:
            clock_finding(*clock_offset(1.8e9, told["began"], told["ended"], 1.8e9 + 3))
    shown_doctor(Findings.of(PLAN.to_json(), found))


def shown_doctor(findings: Findings) -> None:
    console = PlaybookConsole(80)
    assert all(text.isprintable() for text in console.lines(*doctor_table(findings, console, verbose=True)))


def shown_peers(answers: Mapping[str, Any]) -> None:
    """Look at what hosts say of each other, those of which all was taken."""
    told = {}
    for host, of in peers.cluster(2).items():
        with suppress(UnusableError):
            said = {
                state: checked("host_doctor", answers.get(f"{host} {state}", {}), {"state": state})
                for state in of["peers"]
            }
            told[host] = answer_of_doctor(**of | {"peers": said})
    shown_doctor(Findings.of(peers.plan(2), told))


def words(unit: bytes = UNIT) -> bytes:
    """What the lead's host prints each time that train.yml looks."""
    told = [{"event": "restored", "pid": 1, "monotonic": 2.0, "global_step": 5, "wall": 1e9}]
    told.append({"event": "recovering", "pid": 1, "monotonic": 3.0, "reason": "UnavailableError: lost"})
    records = "\n" + "".join(f"{json.dumps(record)}\n" for record in told)
    parts = ["\n9 4096\n", f"\n{json.dumps(PROGRESS)}\n", records, "\nStep 1\rStep 2\n"]
    return unit + SEPARATOR.join(["", *parts]).encode()


def watched(content: bytes) -> None:
    """Watch a run whose lead says this at the first look, and between two at which all is well."""
    view, console = WatchedRun(decided_run(2)), PlaybookConsole(80)
    for number, said in enumerate([content, words(), content, words()]):
        text, at = said.decode(errors="surrogateescape"), 40.0 * number
        try:
            reading = Reading.of(text)
        except ValueError:  # as where the host does not answer
            continue
        if reading.restarts != 1:
            _, uptime, _, _, records, *_ = [*text.split(SEPARATOR), "", "", "", "", ""]
            view.began = at - age_of(f"{records}\n{uptime.strip().partition(' ')[0]}", reading)
        for note in view.add_reading(reading, at):
            assert console.words(note.text).plain.isprintable()
        assert clock(view.elapsed(at)).isprintable()
        console.lines(*block_rows(view.now, console, 30, verbose=bool(number % 2)))
        assert log_line(view.now).isprintable()


def units() -> bytes:
    """What the host of a worker prints each time that train.yml asks."""
    shown = (
        "Id=psfleet-worker@1.service\nActiveState=failed\nResult=exit-code\nExecMainStatus=70\nNRestarts=2\n"
    )
    return f"{shown}\n{SEPARATOR}\nworker1: the program failed: boom (exit code 70)\n".encode()


def asked(content: bytes) -> None:
    """Watch a run of whose worker its host says this."""
    for program in ({"release": "abc"}, None):
        view = WatchedRun(decided_run(2, program=program))
        for note in view.add_units("node1", content.decode(errors="surrogateescape"), 1.0):
            assert PlaybookConsole(80).words(note.text).plain.isprintable()
        view.add_reading(Reading(Progress("training")), 2.0)
        assert log_line(view.now).isprintable()


def packed() -> bytes:
    """What host_runs packs on the host of the chief."""
    names = ["logs/worker0.out", "events/worker0.jsonl", "checkpoints/model.index", f"output/{'x' * 200}"]
    return archive_of(map(tarfile.TarInfo, names), b"some content")


def archive_of(
    members: Iterable[tarfile.TarInfo], content: bytes, form: Literal[1, 2] = tarfile.GNU_FORMAT
) -> bytes:
    """An archive with these members, each of which says what it says, with this content behind it."""
    blocks = []
    for member in members:
        member.size = member.size or len(content)
        with suppress(ValueError, OverflowError, UnicodeError):  # what no header can say
            blocks += [member.tobuf(form, "utf-8", "surrogateescape"), content.ljust(512, b"\0")]
    return b"".join([*blocks, bytes(1024)])


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """Archives that no host packs: names that lead elsewhere, sizes that are none, links, odd headers."""
    places = ["logs/worker0.out", "output/x", "output/x/y", "../x", "/etc/x", "output/" + "x/" * 20]
    keys = ["size", "path", "mtime", "linkpath", "hdrcharset"]
    keys += [f"GNU.sparse.{key}" for key in ("map", "major", "minor", "size", "realsize", "offset", "name")]
    odd = ["-1", "9" * 5000, "", "\0", "1e9", "../x", "\ud800", "x" * 10_000, "nan"]
    kinds = [tarfile.REGTYPE] * 3 + [bytes([kind]) for kind in b"0123456789LKSgxX"]
    names, members = st.sampled_from(places), []
    for name in draw(st.lists(names | st.text(max_size=5), min_size=1, max_size=5)):
        member = tarfile.TarInfo(name)
        member.type, member.linkname = draw(st.sampled_from(kinds)), draw(names)
        member.size = draw(st.sampled_from([0, 0, 1, 700, 10**6, 10**12, 2**62, -1, -(2**40)]))
        member.mtime = draw(st.sampled_from([0, -1, 2**63, 0.5]))
        headers = st.dictionaries(st.sampled_from(keys), st.sampled_from(odd), max_size=2)
        member.pax_headers = draw(headers)
        members.append(member)
    forms: list[Literal[1, 2]] = [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
    return archive_of(members, draw(st.binary(max_size=600)), draw(st.sampled_from(forms)))


def unpacked(folder: Path, content: bytes) -> None:
    """Unpack what a host has sent, compressed where it is not."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        archive, run = Path(place) / "run.tar.gz", Path(place) / "below" / RUN_ID
        archive.write_bytes(content if content.startswith(b"\x1f\x8b") else gzip.compress(content, 1))
        allowed = allowed_names([{"name": "worker0"}], "worker0", program=True)
        names, refused = unpack(archive, Places(run, "node0", ["node0", "node1"], allowed), MOST_BYTES)
        assert all(text.isprintable() for text in (*printable_lines(names), *printable_lines(refused)))
        written = [path for path in Path(place).rglob("*") if path != archive and not path.is_dir()]
        assert all(path.is_relative_to(run) and path.is_file() and not path.is_symlink() for path in written)
        assert sum(path.stat().st_size for path in written) <= MOST_BYTES + 1_000_000


def unpacked_run(folder: Path, content: bytes) -> None:
    """Unpack an archive that someone calls a packed run, compressed where it is not."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        archive = Path(place) / "run.tar.gz"
        archive.write_bytes(content if content.startswith(b"\x1f\x8b") else gzip.compress(content, 1))
        with suppress(OSError, ValueError), unpacked_packed_run(archive) as run:
            written = [path for path in run.rglob("*") if not path.is_dir()]
            assert all(path.is_file() and not path.is_symlink() for path in written)
