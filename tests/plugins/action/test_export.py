"""An export on its way from a host to the folder of its run, also from a host that sends other things."""

import io
import json
import re
import secrets
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from plugins.action import decide_run
from psfleet.evidence.exported_model import README
from psfleet.evidence.saved_models import find_models
from psfleet.run.folder import run_for_playbooks, tasks_of_run
from psfleet.run.settings import run_settings
from psfleet.watch.exports import export_description
from tests.plugins.modules.module_run import action_of
from tests.psfleet.evidence.made_exports import FILES, SAVED, card_of
from tests.psfleet.evidence.run_folders import plan_of
from tests.repository import ROOT, played
from tests.trainer.processes import Cluster
from trainer.contract.exit_codes import FINISHED
from trainer.contract.export import CARD, EXPORT
from trainer.contract.json_files import write_json
from trainer.contract.settings import TrainingSettings

# What the model says of an x of 0.
SERVE = (
    "import sys, tensorflow as tf; serve = tf.saved_model.load(sys.argv[1]).signatures['serving_default'];"
    "print(float(serve(features=tf.constant([0.0]))['y'][0]))"
)
FLAGS = ("--replication=local", "--model=linear", "--steps=40")
RUN_ID = "test"


def begun(folder: Path) -> dict[str, Any]:
    """Write what the controller has of a run of one worker, and return the run as decide_run gives it."""
    plan = plan_of(("worker", "10.0.0.1:2222"))
    training = TrainingSettings(model="linear", replication="local")
    settings = run_settings(plan, {"worker0": training})
    run = run_for_playbooks(folder, settings, tasks_of_run(plan.to_json(), settings))
    write_json(folder / "plan.json", plan.to_json())
    write_json(folder / "settings.json", run["settings"])
    write_json(folder / "state.json", {"state": "ended"})
    run |= export_description(run, "", "", "")
    return run | {"action": "export"}


class Accepted(NamedTuple):
    """Whether collecting and accepting changed something, and why the export was refused, if it was."""

    collected: bool
    changed: bool
    refusal: str


def exported(root: Path, *runs: tuple[Mapping[str, Any], str]) -> list[Accepted]:
    """Collect the export of each run from a host and accept it, in one playbook.

    `runs` are (run, the host's Python).
    """
    playbook, inventory = root / "playbook.yml", root / "hosts.yml"
    playbook.write_text(json.dumps([play_of(root, run, python) for run, python in runs]))
    inventory.write_text(json.dumps({"all": {"hosts": {"host0": {"ansible_connection": "local"}}}}))
    done = played(playbook, "-i", inventory)
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.findall(r"^told (\[.*\])$", done.stdout, re.MULTILINE)
    assert len(told) == len(runs), done.stdout
    return [Accepted(*json.loads(line)) for line in told]


def play_of(root: Path, run: Mapping[str, Any], python: str) -> dict[str, object]:
    """Return the play that collects and accepts the export of this run, and tells how that ended."""
    paths = {"state_directory": f"{root}/state", "log_directory": f"{root}/logs"}
    collect = {"run": run, "tasks": run["tasks"], "exported": True, "limit_megabytes": 1, "paths": paths}
    accept = {"run": run, "state": "exported", "left_out": "{{ found.left_out | default([]) }}"}
    told = "[found.changed, accepted.changed, accepted.msg | default('')] | to_json"
    tasks = [
        {"psfleet.cluster.collect_run": collect, "register": "found", "when": run["action"] == "export"},
        {"psfleet.cluster.run_folder": accept, "register": "accepted", "ignore_errors": True},
        {"ansible.builtin.debug": {"msg": f"told {{{{ {told} }}}}"}},
    ]
    here = {"ansible_python_interpreter": python}
    return {"hosts": "all", "gather_facts": False, "vars": here, "tasks": tasks}


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own: TensorFlow must not be loaded in the one of these tests."""
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.chaos
def test_the_model_of_a_real_run_is_collected_and_serves(tmp_path: Path) -> None:
    with Cluster(tmp_path / "hosts", ps=0, workers=1, flags=FLAGS) as cluster:
        cluster.start()
        assert cluster.wait() == {"worker0": FINISHED}, cluster.outputs()
        on_host = Path(shutil.copytree(cluster.directory("worker0"), tmp_path / "state" / "runs" / RUN_ID))
    evaluator = ["-m", "trainer.evaluator", "--export", str(on_host)]
    assert ran(*evaluator).returncode == FINISHED
    folder = tmp_path / "runs" / RUN_ID
    shutil.copytree(on_host / "events", folder / "events")
    run = begun(folder)
    assert exported(tmp_path, (run, sys.executable)) == [(True, True, "")]
    files = {path.relative_to(folder / EXPORT).as_posix() for path in (folder / EXPORT).rglob("*.*")}
    assert files == {*FILES, CARD, README}
    card = json.loads((folder / EXPORT / CARD).read_text())
    y = float(ran("-c", SERVE, str(folder / EXPORT)).stdout)
    assert y == pytest.approx(card["metrics"]["bias"])
    page = (folder / EXPORT / README).read_text()
    assert "| verdict on the run | none: the run is ended, and was not judged |" in page
    assert f"serve = tf.saved_model.load('runs/{RUN_ID}/export').signatures['serving_default']" in page
    assert [model.path for model in find_models(folder)] == [EXPORT]
    decide = {"state": "exported", "run_id": RUN_ID, "runs_directory": str(folder.parent)}
    # It reaches no host: the action has no connection.
    assert action_of(decide_run.ActionModule)._act(decide)["run"]["action"] == "present"
    present = (run | {"action": "present"}, sys.executable)
    assert exported(tmp_path, present) == [(False, False, "")]
    write_json(folder / "verdict.json", {"verdict": "proven"})
    assert exported(tmp_path, present) == [(False, True, "")]
    assert "| verdict on the run | proven |" in (folder / EXPORT / README).read_text()


def forged(root: Path, members: Mapping[str, bytes], links: Mapping[str, str]) -> str:
    """Return the Python of a host that answers with an archive of these files, and of links."""
    # It is removed when it is fetched, as on a host.
    archive = Path(f"/var/tmp/psfleet-{secrets.token_hex(4)}.tar.gz")
    with tarfile.open(archive, "w:gz") as stream:
        for name, target in links.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            stream.addfile(link)
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            stream.addfile(member, io.BytesIO(content))
    answer = {"path": str(archive), "size": archive.stat().st_size, "files": 1, "left_out": []}
    python = root / "python"
    python.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{json.dumps(answer)}'\n")
    python.chmod(0o755)
    return str(python)


WHOLE = {f"{EXPORT}/{name}": content for name, content in FILES.items()}
WHOLE[f"{EXPORT}/{CARD}"] = json.dumps(card_of(run_id=RUN_ID)).encode()


class Case(NamedTuple):
    """What a host's archive has besides or instead of a whole export, and whether it is accepted."""

    others: dict[str, bytes]
    links: dict[str, str]
    accepted: bool


CASES = {
    "whole": Case({}, {}, True),
    "files of the run": Case(
        {"events/worker0.jsonl": b"forged", "verdict.json": b"{}", f"{EXPORT}/README.md": b"x"}, {}, True
    ),
    "paths to outside": Case(
        {"../state.json": b"{}", f"{EXPORT}/../plan.json": b"{}", "/tmp/psfleet-escaped": b""}, {}, True
    ),
    "links": Case({}, {f"{EXPORT}/variables": "/tmp", EXPORT: "/tmp"}, True),
    "a script": Case({f"{EXPORT}/assets/x.sh": b"#!"}, {}, False),
    "an empty card": Case({f"{EXPORT}/{CARD}": b"{}"}, {}, False),
    "another run": Case({f"{EXPORT}/{CARD}": json.dumps(card_of(run_id="other")).encode()}, {}, False),
    "another model": Case({f"{EXPORT}/saved_model.pb": b"forged"}, {}, False),
    "too large": Case({f"{EXPORT}/variables/variables.data-00000-of-00001": bytes(2_000_000)}, {}, False),
}


class Sent(NamedTuple):
    """The run's folder, its files before and after, {path: content}, and how the export was taken."""

    folder: Path
    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    answer: Accepted


def contents(folder: Path) -> dict[str, bytes]:
    """Return {path in the folder: content} of all files."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sent]:
    """Return what became of the archive of each case, all of them in one playbook."""
    root = tmp_path_factory.mktemp("exports")
    runs = []
    event = {"v": 1, "event": "checkpointed", "run_id": RUN_ID, "job": "worker", "index": 0, "host": "host0"}
    event |= {"pid": 1, "plan_hash": "", "release": "", "wall": 1.8e9, "monotonic": 1.0, **SAVED}
    for name, case in CASES.items():
        folder = root / name / "runs" / RUN_ID
        (folder / "events").mkdir(parents=True)
        (folder / "events" / "worker0.jsonl").write_text(json.dumps(event) + "\n")
        runs.append((begun(folder), forged(root / name, {**WHOLE, **case.others}, case.links)))
    before = {name: contents(root / name / "runs") for name in CASES}
    answers = exported(root, *runs)
    return {
        name: Sent(root / name / "runs" / RUN_ID, before[name], contents(root / name / "runs"), answer)
        for name, answer in zip(CASES, answers, strict=True)
    }


@pytest.mark.parametrize("name", CASES)
def test_a_host_brings_an_export_into_its_place_and_nothing_else(sent: Mapping[str, Sent], name: str) -> None:
    folder, before, after, answer = sent[name]
    accepted = CASES[name].accepted
    new = {f"{RUN_ID}/{path}" for path in (*WHOLE, f"{EXPORT}/{README}")} if accepted else set()
    assert after.keys() - before.keys() == new, answer
    assert {path: after.get(path) for path in before} == before
    assert not (folder / ".export").exists()
    assert not Path("/tmp/psfleet-escaped").exists()
    assert (
        answer.refusal.startswith("Nothing was exported: what came from host0 is refused: ") is not accepted
    )
