"""Checks the answers of modules before anything uses them, because a host may send whatever it likes.

An answer that lacks a field, or has a value of another kind, is unusable. Fields that are not listed here are
dropped, because Ansible would act on many of them on the controller (`add_host`, `ansible_facts`,
`failed_when_result`).
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, get_args

from plugins.module_utils.content_directory import HASH_DIGITS
from plugins.module_utils.environments.environment import every_environment
from plugins.module_utils.facts.host_facts import SYSTEM_DIRECTORIES
from plugins.module_utils.people import BEGUN, PERSON
from plugins.module_utils.systems import read_systems
from trainer.contract.plan import ClusterPlan
from trainer.contract.rules import as_given
from trainer.host.check import State
from trainer.host.error_lines import in_short
from trainer.host.task_traces import MOST_BYTES, RUN_ID, number
from trainer.host.task_units import UNIT_JOBS


class UnusableError(ValueError):
    """A host's answer is not one that the module can have given."""


# The most characters of a name, a state, or the cause of an end in an answer.
LONGEST_WORDS = 300
# Limits that no true answer reaches: of tasks or checks, and of characters of a file.
MOST_ENTRIES, MOST_CHARACTERS = 4096, 4 * MOST_BYTES
PYTHON = re.compile(rf"/(?:{'|'.join(SYSTEM_DIRECTORIES)})/python3\.[0-9]{{1,3}}")
HASH_OR_NONE = re.compile(rf"([0-9a-f]{{{HASH_DIGITS}}})?")


def _all(kind: str, values: Collection[object]) -> bool:
    return len(values) <= MOST_ENTRIES and all(map(KINDS[kind], values))


def _is_difference(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(side, str | dict | list) for side in value.values())


# {kind: whether a value is of this kind}; tools/host_answers_schema.py says the same as JSON Schema.
KINDS: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str) and len(value) <= MOST_CHARACTERS,
    "words": lambda value: isinstance(value, str) and len(value) <= LONGEST_WORDS,
    "run or none": lambda value: value == "" or KINDS["run"](value),
    "state": lambda value: value in get_args(State),
    "run": lambda value: isinstance(value, str) and bool(RUN_ID.fullmatch(value)),
    "person": lambda value: value == "" or (isinstance(value, str) and bool(PERSON.fullmatch(value))),
    "begun": lambda value: value == "" or (isinstance(value, str) and bool(BEGUN.fullmatch(value))),
    "switch": lambda value: isinstance(value, bool),
    "whole": lambda value: isinstance(value, int) and number(value) is not None,
    "count": lambda value: KINDS["whole"](value) and value >= 0,
    "count or none": lambda value: value is None or KINDS["count"](value),
    "moment": lambda value: number(value) is not None,
    "environment": lambda value: value in [each.name for each in every_environment()],
    "python": lambda value: isinstance(value, str) and bool(PYTHON.fullmatch(value)),
    # A role runs the module that a system names, so it must be a system that is known here: `_of_facts`
    # compares it with the systems that were sent to the host.
    "system": lambda value: isinstance(value, dict) and all(isinstance(text, str) for text in value.values()),
    "hash": lambda value: isinstance(value, str) and bool(HASH_OR_NONE.fullmatch(value)),
    "hashes": lambda value: isinstance(value, list) and _all("hash", value),
    "figure": lambda value: value is None or number(value) is not None,
    "object": lambda value: isinstance(value, dict),
    "figures": lambda value: isinstance(value, dict) and _all("figure", value.values()),
    "texts": lambda value: isinstance(value, list) and _all("text", value),
    "named texts": lambda value: isinstance(value, dict) and _all("texts", value.values()),
    "counts": lambda value: isinstance(value, list) and _all("count", value),
    # There may be any number of files to carry.
    "places": lambda value: isinstance(value, list) and all(map(KINDS["count"], value)),
    "named counts": lambda value: isinstance(value, dict) and _all("count", value.values()),
    "objects": lambda value: isinstance(value, list) and _all("object", value),
    "differences": lambda value: all(map(_is_difference, value if isinstance(value, list) else [value])),
}
# {kind of value: names of the fields of that kind, separated by blanks}. A field with "?" is optional.
Fields = Mapping[str, str]
# The fields that any answer may have. Of a failed module's answer, only these are kept.
COMMON_FIELDS: Fields = {
    "switch": "changed? failed?",
    "text": "msg?",
    "texts": "warnings?",
    "differences": "diff?",
}
# {part of the module `host_facts`: the entry of ANSWERS with the fields of its fact}
FACTS = {
    "found": "trainer_tasks",
    "requirements": "host_requirements",
    "gpus": "gpu_facts",
    "content": "content",
    "units": "units",
    "identity": "ssh_identity",
}
# {module, or module and state: the fields of its RETURN}. Each part of `host_facts` has an entry, too.
ANSWERS: Mapping[str, Fields] = {
    "trainer_tasks": {
        **{"object": "deployed", "text": "tensorflow unfenced", "hash": "release environment"},
        **{"switch": "lacks_cuda holds_run", "hashes": "programs", "moment": "looked"},
        **{"objects": "tasks checks", "named counts": "stopped", "person": "deployed_by"},
    },
    "trainer_tasks reloaded": {"texts": "departed"},
    "carried_files": {"switch": "needs_manifest", "places": "lacking?"},
    "content": {"hashes": "releases programs environments settled"},
    "units": {"switch": "up_to_date"},
    "content_release": {"switch": "needs_archive", "hash": "release"},
    "content_release pruned": {"texts": "removed", "count": "freed_bytes"},
    "gpu_facts": {"object": "gpu_facts installation", "objects": "checks", "texts": "broken"},
    "host_facts": {"object": "ansible_facts"},
    "host_doctor": {
        **{"objects": "checks", "texts": "alive", "text": "deployed", "switch": "listened"},
        **{"moment": "began ended"},
    },
    "host_doctor listening": {"text": "machine", "counts": "free held", "object": "listener"},
    "host_doctor probed": {"named texts": "names", "objects": "probes"},
    "host_lease": {"text": "problem"},
    "host_requirements": {"environment": "environment", "python": "python", "system": "system"},
    "host_reset": {"texts": "removed stays"},
    "host_runs": {"objects": "runs"},
    "host_runs removed": {"texts": "removed", "count": "freed_bytes"},
    "host_runs packed": {"text": "path", "count": "size files", "texts": "left_out"},
    "files": {"texts": "changed_paths removed_paths"},
    "port_fence": {"texts": "changed_paths"},
    "python_environment": {"switch": "needs_archive", "text": "not_given?"},
    "ssh_identity": {
        **{"text": "user_key host_key certificate authority cluster", "switch": "prepared proven"},
        **{"texts": "addresses", "person": "deployed_by"},
    },
    "ssh_login": {"switch": "proven"},
}
# {field that is a list of objects: the fields of each object}
PARTS: Mapping[str, Fields] = {
    "checks": {"text": "name found remedy task", "state": "state"},
    "probes": {"text": "host outcome source name machine", "counts": "ports"},
    "runs": {"run": "run_id", "count": "size", "moment": "changed", "figure": "global_step"},
    "tasks": {
        "words": "name job state phase ended_by",
        "run or none": "run_id",
        "text": "reason",
        "count": "index restarts pid",
        "switch": "alive failed",
        "count or none": "exit_code refused",
        "begun": "begun",
        "figure": "bytes_received bytes_sent",
    },
}
# Further fields of each entry of `tasks`, if `details` are asked for.
DETAILS: Fields = {
    "words": "result",
    "text": "finished log log_end",
    "figure": "since_seconds cpu_seconds memory_bytes last_step_age_seconds sign_of_life_age_seconds",
    "figures": "last_step",
    "object": "progress",
}


def checked(module: str, answer: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return {field: value} of a module's answer, without the fields that may not be used.

    `module` is the name of a module of this collection, or an entry of ANSWERS for a fact of `host_facts`;
    `arguments` are the arguments of its call. An invalid plan in an answer of `trainer_tasks` becomes {},
    which means not deployed. Raises UnusableError, which names the invalid field.
    """
    name = f"{module} {arguments.get('state')}"
    fields = ANSWERS.get(name if name in ANSWERS else module)
    if fields is None:
        raise UnusableError(f"psfleet has no description of what {module} answers")
    kept = _checked_fields(answer, COMMON_FIELDS)
    if kept.get("failed"):
        kept.setdefault("msg", "it does not say why it failed")
    else:
        kept |= _checked_fields(answer, fields)
    if "ansible_facts" in kept:
        kept["ansible_facts"] = _of_facts(kept["ansible_facts"], arguments)
    if "tasks" in kept:
        kept |= _of_tasks(kept, answer["tasks"], arguments)
    try:
        json.dumps(kept, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise UnusableError(f"it holds bytes that are not text: {error}") from error
    return kept


def _of_facts(facts: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return {name of the fact: its checked value} for the parts that `host_facts` was asked for."""
    kept = {}
    for part, kind in FACTS.items():
        if arguments.get(part) is None:
            continue
        if not isinstance(fact := facts.get(f"psfleet_{part}"), dict):
            raise UnusableError(f"psfleet_{part} is {as_given(fact)}; expected an object")
        kept[f"psfleet_{part}"] = found = checked(kind, fact, arguments[part])
        if "system" in found:
            known = read_systems(arguments.get("systems") or {}).known.values()
            if found["system"] not in [system.for_roles for system in known]:
                raise UnusableError(f"system is {as_given(found['system'])}, which is invalid")
    return kept


def _of_tasks(
    kept: Mapping[str, Any], answered: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the checked `tasks` of an answer of `trainer_tasks`, and its plan `deployed`, {} if invalid.

    If the host only confirms the hash of the plan, the plan is left out.
    """
    requested = [f"{task['job']}{task['index']}" for task in arguments["tasks"]]
    tasks = []
    for place, of_all in enumerate(kept["tasks"]):
        details = DETAILS if arguments.get("details") else {}
        task = of_all | _checked_fields(answered[place], details, f"tasks[{place}].")
        task["reason"] = in_short(task["reason"])
        tasks.append(task)
        known = task["job"] in UNIT_JOBS if arguments.get("others") else task["name"] in requested
        if not known or task["name"] != f"{task['job']}{task['index']}":
            raise UnusableError(
                f"tasks[{place}].name is {as_given(task['name'])}, a task that was not asked for"
            )
    if kept["deployed"] == {"hash": arguments.get("plan_hash")}:
        return {"tasks": tasks}
    try:
        deployed = ClusterPlan.from_json(kept["deployed"]).to_json()
    except ValueError:
        deployed = {}
    return {"tasks": tasks, "deployed": deployed}


def _checked_fields(content: Mapping[str, Any], fields: Fields, prefix: str = "") -> dict[str, Any]:
    """Return the listed fields of an object that a host sent.

    Raises UnusableError if a field is missing or has an invalid value; `prefix` is put before its name in the
    message.
    """
    kept: dict[str, Any] = {}
    for kind, names in fields.items():
        for named in names.split():
            name = named.rstrip("?")
            if name not in content:
                if name == named:
                    raise UnusableError(f"{prefix}{name} is missing")
                continue
            value = content[name]
            if not KINDS[kind](value):
                raise UnusableError(f"{prefix}{name} is {as_given(value)}, which is invalid")
            if kind == "objects":
                value = [
                    _checked_fields(part, PARTS[name], f"{name}[{place}].")
                    for place, part in enumerate(value)
                ]
            kept[name] = value
    return kept
