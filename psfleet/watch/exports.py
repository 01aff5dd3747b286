"""Decides whether a run's model can be exported, accepts what its host exported, and says how to use it."""

import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from plugins.module_utils.environments.environment import TENSORFLOW_VERSION
from plugins.module_utils.saved_places import SAVED
from psfleet.evidence.exported_model import InvalidExportError, ModelExport, last_checkpoint
from psfleet.evidence.reading import read_run
from psfleet.evidence.runs_directory import NoSuchRunError, find_run
from psfleet.evidence.saved_models import CollectedModel, find_models
from psfleet.evidence.verdict import FILE_NAME
from psfleet.inventory.problems import short_path
from psfleet.run.active_runs import RefusedError
from psfleet.run.folder import state_of
from psfleet.run.start import use_problems
from trainer.contract.export import EXPORT, PROGRAM, program_fingerprint, signature_name
from trainer.contract.json_files import read_object
from trainer.contract.model_files import model_name
from trainer.host.wording import first_of, readable

_SIGNS = "_.=,+@:/-"
_NAMES, _NO_NAME = re.compile(rf"[A-Za-z0-9{_SIGNS}]{{1,1000}}"), re.compile(r"[^A-Za-z0-9_.-]")
# Where the evaluator's unit sees the /tmp of the task, and the folder of checkpoints of other hosts.
_TEMPORARY, _OTHERS = "/var/tmp", "other_hosts"  # noqa: S108 - read alone


def run_to_export(runs_directory: Path, run_id: str) -> Path:
    """Return the folder of the run `run_id`, or of the newest run for "".

    Raises RefusedError if the name is invalid, if there is no such run, or if its state is "running": it is
    going on or not collected.
    """
    try:
        folder = find_run(runs_directory, run_id or None)
    except NoSuchRunError as refusal:
        raise RefusedError(str(refusal)) from refusal
    if state_of(folder) == "running":
        again = f"ansible-playbook train.yml -e run_id={folder.name}"
        raise RefusedError(f"run {folder.name} is going on, or not collected: {again} watches it to its end")
    return folder


def export_description(run: Mapping[str, Any], model: str, inputs: str, outputs: str) -> dict[str, Any]:
    """Return how a run is exported, as fields for the result `run` of decide_run.

    `model`, `inputs` and `outputs` are what the user asks for, of a program only; else "". In the result,
    `exporter` is the task whose host exports, and `flags` are the flags of the evaluator there. The card of
    the export must have the values in `expected`, {field: values}, and the names in `asked`, {"inputs" or
    "outputs": names}. For people, there are `name`, `checkpoint`, and `behind`, which says how far the
    checkpoint is behind the end of its run, or is "".
    Raises RefusedError if the run has no checkpoint that can be exported, if the user's choice does not fit
    it, or if one of the three is given for a built-in model.
    """
    folder, program = Path(run["folder"]), run["settings"].get("program")
    if program is not None:
        return _program_description(folder, run, program, model, {"inputs": inputs, "outputs": outputs})
    if given := [
        name for name, value in (("model", model), ("inputs", inputs), ("outputs", outputs)) if value
    ]:
        what = f"export_{given[0]} is for programs, and run {run['id']} trained a model of psfleet"
        raise RefusedError(f"{what}: leave it out")
    saved = last_checkpoint(read_run(folder, folder.name))
    if saved is None:
        what = f"{folder / 'events'} knows of no checkpoint of run {run['id']}"
        raise RefusedError(f"{what}: a run that has begun to train saves one at its end, also by stop.yml")
    name, (step, fingerprint) = model_name(run["settings"]["training"]["model"]), saved
    of_run = {"run_id": [run["id"]], "model": [name], "global_step": [step], "fingerprint": [fingerprint]}
    flags = {"exporter": run["lead"], "flags": "--export", "name": name, "checkpoint": f"model.ckpt-{step}"}
    return {**flags, "expected": of_run, "asked": {}, "behind": ""}


def is_exported(run: Mapping[str, Any]) -> bool:
    """Return True if the run's folder has the export that `run` describes, False if it has no export.

    `run` has the fields of `export_description`. Raises RefusedError if another export or a damaged one is
    there: it is never overwritten. Raises OSError if it cannot be read.
    """
    place = Path(run["folder"]) / EXPORT
    if not (place.exists() or place.is_symlink()):
        return False
    remedy = f"to export anew, remove it: rm -r {short_path(place)}"
    try:
        exported = ModelExport.read(place)
    except InvalidExportError as error:
        raise RefusedError(f"{short_path(place)} is there, and not whole: {error}; {remedy}") from error
    if different := [*exported.differences(run["expected"]), *exported.other_names(run["asked"])]:
        raise RefusedError(f"{short_path(place)} is there, and {'; '.join(different)}; {remedy}")
    return True


def require_host(run: Mapping[str, Any], reached: Collection[str], known: Collection[str]) -> None:
    """Raise RefusedError unless the host with the run's checkpoint is in the play.

    `run` has the fields of `export_description`. `reached` are the hosts of the play, `known` the hosts of
    the inventory; the message says whether --limit or the inventory lacks the host.
    """
    task = run["exporter"]
    if task["host"] in reached:
        return
    where = f"{task['host']}, which has the checkpoint of {task['name']}"
    if task["host"] in known:
        raise RefusedError(f"--limit leaves out {where}: add it to --limit")
    raise RefusedError(f"the inventory has no host {where}; {_without_host(run)}")


def require_exporting_host(
    run: Mapping[str, Any], answer: Mapping[str, Any], plan: Mapping[str, Any]
) -> None:
    """Raise RefusedError unless the exporter's host answered, is free and has the run's files.

    `answer` is the host's answer to `ask_hosts`. A host is free if it is deployed with `plan`, the plan of
    today's inventory, and no run is going on there.
    """
    host = run["exporter"]["host"]
    if answer["problem"]:
        raise RefusedError(f"{host}, which has the checkpoint: {answer['problem']}; {_without_host(run)}")
    problems = use_problems({host: answer}, plan)
    if not answer["holds_run"]:
        problems.append(f"{host} has no files of run {run['id']} any more; {_without_host(run)}")
    if problems:
        raise RefusedError(*problems)


def accept_export(folder: Path, incoming: Path, run: Mapping[str, Any]) -> ModelExport:
    """Move the export in the folder `incoming` to its place in a run's `folder`, and return it.

    `incoming` is removed then. `run` has the fields of `export_description`. Raises RefusedError if the
    export does not match the run's records, InvalidExportError if it is damaged, and OSError if there is an
    export already; then nothing is moved.
    """
    exported = ModelExport.read(incoming / EXPORT)
    if different := [*exported.differences(run["expected"]), *exported.other_names(run["asked"])]:
        raise RefusedError(*different)
    exported.folder.rename(folder / EXPORT)
    shutil.rmtree(incoming, ignore_errors=True)
    return ModelExport(folder / EXPORT, exported.card)


def verdict_on(folder: Path) -> str:
    """Return the verdict on the run in `folder`, such as "proven"; without a verdict, why there is none.

    The verdict is read from verdict.json; the run is not judged again.
    """
    verdict = read_object(folder / FILE_NAME).get("verdict")
    return str(verdict) if verdict else f"none: the run is {state_of(folder)}, and was not judged"


def export_lines(exported: ModelExport, run: Mapping[str, Any], place: str) -> list[str]:
    """Return the lines for people: what was exported and its size, and the Python code that calls it.

    A third line says how far the model is behind the end of its run, if it is. `run` is the result of
    decide_run, and `place` the path of the export as people see it.
    """
    card = exported.card
    given = ", ".join(f"{name}=.." for name in card["inputs"])
    answers = ", ".join(card["outputs"])
    return [
        f"{place} holds {run['name']} of run {card['run_id']} at global step {card['global_step']}, "
        f"a SavedModel of {readable(exported.bytes)}. In Python, with TensorFlow alone:",
        f"{exported.loading_line(place)}({given})  # {answers}",
        *filter(None, [run["behind"]]),
    ]


def _program_description(
    folder: Path, run: Mapping[str, Any], program: Mapping[str, Any], model: str, asked: Mapping[str, str]
) -> dict[str, Any]:
    for name, value in {"model": model, **asked}.items():
        if value and not _NAMES.fullmatch(value):
            raise RefusedError(
                f"export_{name} is {value!r}; expected names with letters, digits and {_SIGNS}"
            )
    found = _chosen_checkpoint(folder, run["id"], model)
    path = found.path
    behind, is_trained = found.behind(folder, read_run(folder, folder.name).global_steps)
    if not (is_trained or model):
        raise RefusedError(f"{behind}; -e export_model={path} exports it anyway")
    first, *rest = path.split("/")
    task, on_host = run["lead"], path
    if first == SAVED:
        task = next((each for each in run["tasks"] if each["name"] == rest[0]), None)
        on_host = "/".join((_TEMPORARY, *rest[2:]) if rest[1] == "tmp" else rest[1:])
    names = {what: [name for name in value.split(",") if name] for what, value in asked.items()}
    given = [f"--{what}={','.join(each)}" for what, each in names.items() if each]
    described = {
        "exporter": task,
        "flags": " ".join(("--export", f"--model={on_host}", *given)),
        "name": _NO_NAME.sub("_", program.get("name") or Path(program["file"]).stem),
        "checkpoint": path,
        "behind": behind,
        "expected": {
            "run_id": [run["id"]],
            "model": [PROGRAM],
            "checkpoint": [path, on_host],
            # Another checkpoint may be saved under the same path later.
            "fingerprint": [program_fingerprint(folder / path)],
        },
        "asked": {what: [signature_name(name) for name in each] for what, each in names.items()},
    }
    if first == _OTHERS or task is None:
        raise RefusedError(
            f"{path} is of another host than the lead's; {_without_host({**run, **described})}"
        )
    return described


def _chosen_checkpoint(folder: Path, run_id: str, asked: str) -> CollectedModel:
    """Return the checkpoint of a program, with its graph (.meta), that is to be exported.

    `asked` is its path relative to the run's folder, "" for the only checkpoint that there is. Raises
    RefusedError if there is no such checkpoint, or if `asked` is "" and there are several.
    """
    found = [model for model in find_models(folder) if not model.path.startswith(f"{EXPORT}/")]
    found = [model for model in found if model.path != EXPORT]
    graphs = {
        model.path: model
        for model in found
        if model.kind == "checkpoint"
        and (folder / f"{model.path}.meta").is_file()
        and _NAMES.fullmatch(model.path)
    }
    if asked in graphs or (len(graphs) == 1 and not asked):
        return graphs[asked or next(iter(graphs))]
    if graphs:
        choose = f"choose one by -e export_model=..: {first_of(list(graphs))}"
        raise RefusedError(
            f"export_model is {asked!r}, and run {run_id} has {len(graphs)} checkpoints: {choose}"
        )
    others = [model.in_words(short_path(folder)) for model in found]
    what = f"run {run_id} has no checkpoint of a program with its graph (.meta)"
    have = f"what it saved is loaded as it is: {first_of(others)}" if others else "it saved no model"
    raise RefusedError(f"{what}; {have}")


def _without_host(run: Mapping[str, Any]) -> str:
    """Return in words, with a command, how the user can export a run from its collected files alone."""
    # On a host a checkpoint in a task's /tmp has another path.
    of_program = [f"--model={run['checkpoint']}", *run["flags"].split()[2:]]
    words = " ".join(
        (*(of_program if run["settings"].get("program") else ()), short_path(Path(run["folder"])))
    )
    command = f"python -m trainer.evaluator --export {words}"
    return (
        f"its collected files can be exported where TensorFlow {TENSORFLOW_VERSION} is installed: {command}"
    )
