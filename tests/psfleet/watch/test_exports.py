"""Which runs can be exported, and what is accepted of what a host exported."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psfleet.carry.collected_files import INCOMING
from psfleet.evidence.exported_model import InvalidExportError
from psfleet.run.active_runs import RefusedError
from psfleet.watch.exports import (
    accept_export,
    export_description,
    export_lines,
    is_exported,
    require_exporting_host,
    require_host,
    run_to_export,
    verdict_on,
)
from tests.psfleet.evidence.made_exports import FILES, FINGERPRINT, SAVED, card_of, write_export
from tests.psfleet.report.made_runs import make_run
from tests.psfleet.run.answering_hosts import PLAN, found
from trainer.contract.export import EXPORT
from trainer.contract.json_files import read_object, write_json

LEAD = {"name": "worker0", "job": "worker", "index": 0, "host": "n2", "role": "client"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run whose chief saved a checkpoint last at step 40."""
    folder = make_run(tmp_path / "runs" / "r1")
    chief = folder / "events" / "worker0.jsonl"
    lines = chief.read_text().splitlines()
    for step in (20, 40):
        lines.append(
            json.dumps({**json.loads(lines[0]), "event": "checkpointed", **SAVED, "global_step": step})
        )
    chief.write_text("\n".join(lines) + "\n")
    write_json(folder / "state.json", {"state": "ended"})
    return folder


def run_of(folder: Path, model: str = "", **names: str) -> dict[str, Any]:
    settings = read_object(folder / "settings.json")
    run = {"id": folder.name, "folder": str(folder), "settings": settings, "lead": LEAD, "tasks": [LEAD]}
    return run | export_description(run, model, names.get("inputs", ""), names.get("outputs", ""))


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(RefusedError) as refused:
        call()
    return "\n".join(refused.value.problems)


def test_the_newest_run_is_exported_unless_one_is_named(folder: Path) -> None:
    assert run_to_export(folder.parent, "") == folder
    assert run_to_export(folder.parent, "r1") == folder
    assert "there is no run 'r2'. The runs that exist are r1" in refusal(
        lambda: run_to_export(folder.parent, "r2")
    )
    assert "run_id is 'r1,r2'; expected lower case" in refusal(lambda: run_to_export(folder.parent, "r1,r2"))
    assert "There is no run in" in refusal(lambda: run_to_export(folder / "none", ""))


def test_a_run_that_goes_on_is_not_exported_even_if_a_part_of_it_was_judged(folder: Path) -> None:
    write_json(folder / "state.json", {"state": "running"})
    write_json(folder / "verdict.json", {"verdict": "proven"})
    why = refusal(lambda: run_to_export(folder.parent, ""))
    assert why == (
        "run r1 is going on, or not collected: ansible-playbook train.yml -e run_id=r1 watches it to its end"
    )


def test_a_run_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "r1")
    assert "knows of no checkpoint of run r1" in refusal(lambda: run_of(folder))


def test_an_export_of_the_last_checkpoint_is_there_already(folder: Path) -> None:
    assert not is_exported(run_of(folder))
    write_export(folder / EXPORT)
    assert is_exported(run_of(folder))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (
            lambda export: write_export(export, card=card_of(global_step=20)),
            "its global step is 20, that of the run is 40",
        ),
        (
            lambda export: (write_export(export) / "saved_model.pb").unlink(),
            "not whole: saved_model.pb is missing",
        ),
        (lambda export: export.symlink_to("/etc"), "not whole: it is no folder"),
        (lambda export: export.symlink_to("/nowhere"), "not whole: it is no folder"),
        (lambda export: export.write_text("mine"), "not whole: it is no folder"),
        (lambda export: export.mkdir(), "not whole: export.json: No such file"),
    ],
)
def test_whatever_else_is_there_is_kept_with_its_remedy(
    folder: Path, spoil: Callable[[Path], object], why: str
) -> None:
    spoil(folder / EXPORT)
    text = refusal(lambda: is_exported(run_of(folder)))
    assert why in text
    assert f"remove it: rm -r {folder / EXPORT}" in text


def test_the_host_with_the_checkpoint_must_be_there(folder: Path) -> None:
    run = run_of(folder)
    require_host(run, ["n1", "n2"], ["n1", "n2"])
    assert "--limit leaves out n2, which has the checkpoint of worker0" in refusal(
        lambda: require_host(run, ["n1"], ["n1", "n2"])
    )
    gone = refusal(lambda: require_host(run, ["n1"], ["n1"]))
    assert "the inventory has no host n2" in gone
    assert f"python -m trainer.evaluator --export {folder}" in gone


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            {"problem": "could not log in: timeout"},
            "n2, which has the checkpoint: could not log in: timeout; its",
        ),
        (found("worker0", run_id="r1"), "n2 has no files of run r1 any more; its collected files"),
        (found("worker0", deployed={}, holds_run=True), "run deploy.yml first, on these hosts: n2"),
        (found("worker0", alive=True, run_id="r1", holds_run=True), "run r1 is going on (worker0 on n2)"),
        (found("worker0", alive=True, run_id="r2", holds_run=True), "run r2 is going on (worker0 on n2)"),
    ],
)
def test_a_host_that_cannot_export_is_named_with_the_reason(
    folder: Path, answer: dict[str, Any], why: str
) -> None:
    text = refusal(lambda: require_exporting_host(run_of(folder), {"problem": "", **answer}, PLAN))
    assert why in text


def test_a_host_with_the_run_exports_it(folder: Path) -> None:
    require_exporting_host(
        run_of(folder), {"problem": "", **found("worker0", run_id="r2", holds_run=True)}, PLAN
    )


def test_an_export_that_fits_the_runs_records_takes_its_place(folder: Path) -> None:
    write_export(folder / INCOMING / EXPORT)
    exported = accept_export(folder, folder / INCOMING, run_of(folder))
    assert exported.folder == folder / EXPORT
    assert {path.name for path in exported.folder.iterdir()} == {"export.json", "saved_model.pb", "variables"}
    assert not (folder / INCOMING).exists()
    first, second = export_lines(exported, run_of(folder), "runs/r1/export")
    assert first.startswith(
        "runs/r1/export holds linear of run r1 at global step 40, a SavedModel of 17 bytes"
    )
    assert second == "tf.saved_model.load('runs/r1/export').signatures['serving_default'](features=..)  # y"


@pytest.mark.parametrize(
    ("card", "files", "kind"),
    [
        (card_of(run_id="r2"), FILES, RefusedError),
        (card_of(model="cnn"), FILES, RefusedError),
        (card_of(global_step=20), FILES, RefusedError),
        (card_of(fingerprint=FINGERPRINT[::-1]), FILES, RefusedError),
        (card_of(), {**FILES, "saved_model.pb": b"other"}, InvalidExportError),
        (card_of(), {name: FILES[name] for name in [*FILES][:2]}, InvalidExportError),
        (card_of(), {**FILES, "assets/x": b"1"}, InvalidExportError),
        ({}, {}, InvalidExportError),
    ],
)
def test_anything_else_takes_no_place(
    folder: Path, card: dict[str, Any], files: dict[str, bytes], kind: type[Exception]
) -> None:
    write_export(folder / INCOMING / EXPORT, files, card)
    with pytest.raises(kind):
        accept_export(folder, folder / INCOMING, run_of(folder))
    assert not (folder / EXPORT).exists()


def test_an_export_that_somebody_has_put_there_meanwhile_is_not_overwritten(folder: Path) -> None:
    write_export(folder / INCOMING / EXPORT)
    write_export(folder / EXPORT, {**FILES, "saved_model.pb": b"mine"})
    with pytest.raises(OSError, match="Directory not empty"):
        accept_export(folder, folder / INCOMING, run_of(folder))
    assert (folder / EXPORT / "saved_model.pb").read_bytes() == b"mine"
    shutil.rmtree(folder / EXPORT)
    (folder / EXPORT).symlink_to(folder.parent)
    with pytest.raises(OSError, match="Not a directory"):
        accept_export(folder, folder / INCOMING, run_of(folder))


def test_the_verdict_on_a_run_is_told_or_why_it_has_none(folder: Path) -> None:
    write_json(folder / "state.json", {"state": "stopped"})
    assert verdict_on(folder) == "none: the run is stopped, and was not judged"
    write_json(folder / "verdict.json", {"verdict": "proven"})
    assert verdict_on(folder) == "proven"


def saves(folder: Path, *names: str, **program: str) -> None:
    """Make a run one of a program that saved these files."""
    settings = read_object(folder / "settings.json")
    write_json(folder / "settings.json", settings | {"program": {"file": "train.py", **program}})
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"1")


def checkpoint(path: str) -> list[str]:
    return [f"{path}.{suffix}" for suffix in ("meta", "index", "data-00000-of-00001")]


@pytest.mark.parametrize(
    ("path", "on_host"),
    [
        ("saved/worker0/tmp/train_logs/model.ckpt-600", "/var/tmp/train_logs/model.ckpt-600"),
        ("saved/worker0/logs/model.ckpt-600", "logs/model.ckpt-600"),
        ("checkpoints/model.ckpt-600", "checkpoints/model.ckpt-600"),
        ("output/model.ckpt-600", "output/model.ckpt-600"),
    ],
)
def test_the_only_checkpoint_of_a_program_is_exported_from_its_place_on_the_host(
    folder: Path, path: str, on_host: str
) -> None:
    saves(folder, *checkpoint(path), name="my program")
    run = run_of(folder, inputs="x,keep/prob:0", outputs="softmax:0")
    assert run["exporter"] == LEAD
    assert run["flags"] == f"--export --model={on_host} --inputs=x,keep/prob:0 --outputs=softmax:0"
    assert (run["name"], run["checkpoint"]) == ("my_program", path)
    assert run["asked"] == {"inputs": ["x", "keep_prob"], "outputs": ["softmax"]}
    assert not is_exported(run)
    index = hashlib.sha256(b"1").hexdigest()[:16]
    write_export(folder / EXPORT, card=card_of(model="program", checkpoint=on_host, fingerprint=index))
    assert is_exported(run_of(folder))
    assert "its inputs are features, asked for are x, keep_prob" in refusal(lambda: is_exported(run))
    (folder / f"{path}.index").write_bytes(b"2")
    assert f"its fingerprint is {index}, that of the run is " in refusal(lambda: is_exported(run_of(folder)))
    gone = refusal(lambda: require_host(run, [], []))
    words = f"--export --model={path} --inputs=x,keep/prob:0 --outputs=softmax:0 {folder}"
    assert gone.endswith(f"python -m trainer.evaluator {words}")


def test_of_several_checkpoints_one_is_chosen(folder: Path) -> None:
    paths = ["checkpoints/b/model.ckpt-2", "checkpoints/a/model.ckpt-1"]
    saves(folder, *checkpoint(paths[0]), *checkpoint(paths[1]))
    for asked in ("", "checkpoints/model.ckpt-3"):
        why = refusal(lambda asked=asked: run_of(folder, asked))  # type: ignore[misc]
        assert (
            "choose one by -e export_model=..: checkpoints/a/model.ckpt-1, checkpoints/b/model.ckpt-2" in why
        )
    assert run_of(folder, paths[1])["checkpoint"] == paths[1]


def test_a_program_without_a_checkpoint_with_its_graph_is_refused_with_what_it_saved(folder: Path) -> None:
    saves(folder)
    assert "has no checkpoint of a program with its graph (.meta); it saved no model" in refusal(
        lambda: run_of(folder)
    )
    saves(folder, *checkpoint("checkpoints/ckpt-1")[1:], "saved/worker0/m/saved_model.pb")
    why = refusal(lambda: run_of(folder))
    assert f"tf.saved_model.load('{folder}/saved/worker0/m')" in why


@pytest.mark.parametrize("path", ["other_hosts/n3/checkpoints/model.ckpt-1", "saved/worker7/model.ckpt-1"])
def test_a_checkpoint_of_a_host_that_is_not_known_is_exported_from_here(folder: Path, path: str) -> None:
    saves(folder, *checkpoint(path))
    why = refusal(lambda: run_of(folder, inputs="x", outputs="y"))
    assert why.endswith(f"--export --model={path} --inputs=x --outputs=y {folder}")


@pytest.mark.parametrize("name", ["x y", "x;y", "x\\ny", "$(x)", '"', "x'"])
def test_names_that_no_graph_has_are_refused_before_a_host_gets_them(folder: Path, name: str) -> None:
    saves(folder, *checkpoint("checkpoints/model.ckpt-1"))
    assert "export_outputs is " in refusal(lambda: run_of(folder, inputs="x", outputs=name))


def test_names_for_a_model_of_psfleet_are_refused(folder: Path) -> None:
    assert "export_inputs is for programs" in refusal(lambda: run_of(folder, inputs="x"))


@pytest.mark.slow
def test_the_checkpoint_of_the_start_is_exported_only_by_its_name(folder: Path) -> None:
    saves(folder)
    script = Path(__file__).parents[1] / "evidence" / "saving_program.py"
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, script, folder, "at_the_start"], env=quiet, check=True, timeout=250)
    behind = "model.ckpt was saved at step 0 of "
    why = refusal(lambda: run_of(folder))
    assert why.startswith(behind)
    assert why.endswith(": not the trained model; -e export_model=checkpoints/model.ckpt exports it anyway")
    run = run_of(folder, "checkpoints/model.ckpt", inputs="features", outputs="y")
    assert run["behind"].startswith(behind)
    exported = accept_export(folder, write_export(folder / INCOMING / EXPORT).parent, run | {"expected": {}})
    assert export_lines(exported, run, "runs/r1/export")[-1] == run["behind"]
