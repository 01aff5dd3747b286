"""Checks the answers of modules before anything uses them, because a host may send whatever it likes.

An answer that lacks a field, or has a value of another kind, is unusable. Fields that are not listed here are
dropped, because Ansible would act on many of them on the controller (`add_host`, `ansible_facts`,
`failed_when_result`).
"""

import json
import re
from collections.abc import Mapping
from typing import Any, get_args

from plugins.module_utils.content_directory import HASH_DIGITS
from plugins.module_utils.environments.environment import NAME as ENVIRONMENT_NAME
from plugins.module_utils.environments.environment import every_environment
from plugins.module_utils.facts.host_facts import SYSTEM_DIRECTORIES
from plugins.module_utils.people import BEGUN, PERSON
from plugins.module_utils.systems import read_systems
from trainer.contract.json_values import (
    COUNT,
    MOST_WHOLE,
    OBJECT,
    SWITCH,
    TEXT,
    list_of,
    mapping_of,
    matching,
    nullable,
    object_of,
    one_of,
    real,
    text,
)
from trainer.contract.plan import ClusterPlan
from trainer.contract.rules import Rule, as_given, convert_fields, optional
from trainer.host.check import State
from trainer.host.error_lines import in_short
from trainer.host.task_traces import MOST_BYTES, RUN_ID
from trainer.host.task_units import UNIT_JOBS, task_name


class UnusableError(ValueError):
    """A host's answer is invalid: the module cannot have given it."""


# The most characters of a name, a state, or the cause of an end in an answer.
LONGEST_WORDS = 300
# Limits that no true answer reaches: of tasks or checks, and of characters of a file.
MOST_ENTRIES, MOST_CHARACTERS = 4096, 4 * MOST_BYTES


def _to_side(value: object) -> object:
    if not isinstance(value, str | dict | list):
        raise ValueError(value)
    return value


def _to_differences(value: object) -> object:
    return (list_of(_DIFFERENCE) if isinstance(value, list) else _DIFFERENCE).convert(value)


_DIFFERENCE = mapping_of(Rule("a text, an object or a list", _to_side))
_TEXT, _WORDS, _MOMENT = text(MOST_CHARACTERS), text(LONGEST_WORDS), real(-MOST_WHOLE, MOST_WHOLE)
_FIGURE, _COUNT_OR_NULL = nullable(_MOMENT), nullable(COUNT)
_HASH = matching("a hash", re.compile(f"[0-9a-f]{{{HASH_DIGITS}}}"), or_empty=True)
_PYTHON = matching(
    "a Python such as /usr/bin/python3.11",
    re.compile(rf"/(?:{'|'.join(SYSTEM_DIRECTORIES)})/python3\.[0-9]{{1,3}}"),
)
_PERSON = matching("a person, such as ana@desk", PERSON, or_empty=True)
_TEXTS, _COUNTS, _HASHES = (list_of(rule, MOST_ENTRIES) for rule in (_TEXT, COUNT, _HASH))


def _objects(rules: Mapping[str, Rule]) -> Rule:
    return list_of(object_of(rules), MOST_ENTRIES)


_CHECKS = _objects(
    {"name": _TEXT, "state": one_of(*get_args(State)), "found": _TEXT, "remedy": _TEXT, "task": _TEXT}
)
_TASK = {
    "name": _WORDS,
    "job": _WORDS,
    "index": COUNT,
    "state": _WORDS,
    "alive": SWITCH,
    "failed": SWITCH,
    "pid": COUNT,
    "restarts": COUNT,
    "phase": _WORDS,
    "run_id": matching("the id of a run", RUN_ID, or_empty=True),
    "begun": matching("a person and the time", BEGUN, or_empty=True),
    "exit_code": _COUNT_OR_NULL,
    "ended_by": _WORDS,
    "reason": _TEXT,
    "refused": _COUNT_OR_NULL,
    "bytes_received": _COUNT_OR_NULL,
    "bytes_sent": _COUNT_OR_NULL,
}
# The fields of a task if `details` are asked for.
_DETAILED_TASK = {
    **_TASK,
    "result": _WORDS,
    "finished": _TEXT,
    "log": _TEXT,
    "log_end": _TEXT,
    "since_seconds": _FIGURE,
    "cpu_seconds": _FIGURE,
    "memory_bytes": _FIGURE,
    "last_step": mapping_of(_FIGURE, MOST_ENTRIES),
    "last_step_age_seconds": _FIGURE,
    "sign_of_life_age_seconds": _FIGURE,
    "progress": OBJECT,
}
# The fields that any answer may have. Of a failed module's answer, only these are kept.
COMMON_FIELDS: Mapping[str, Rule] = {
    "changed": optional(SWITCH),
    "failed": optional(SWITCH),
    "msg": optional(_TEXT),
    "warnings": optional(_TEXTS),
    "diff": optional(Rule("an object, or a list of objects", _to_differences)),
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
ANSWERS: Mapping[str, Mapping[str, Rule]] = {
    "trainer_tasks": {
        "deployed": OBJECT,
        "deployed_by": _PERSON,
        "tensorflow": _TEXT,
        "unfenced": _TEXT,
        "release": _HASH,
        "environment": _HASH,
        "program_environments": mapping_of(_HASH),
        "programs": _HASHES,
        "lacks_cuda": SWITCH,
        "holds_run": SWITCH,
        "looked": _MOMENT,
        "checks": _CHECKS,
        "stopped": mapping_of(COUNT, MOST_ENTRIES),
        "tasks": _objects(_TASK),
    },
    "trainer_tasks reloaded": {"departed": _TEXTS},
    # There may be any number of files to carry.
    "carried_files": {"needs_manifest": SWITCH, "lacking": optional(list_of(COUNT))},
    "content": {"releases": _HASHES, "programs": _HASHES, "environments": _HASHES, "settled": _HASHES},
    "units": {"up_to_date": SWITCH},
    "content_release": {"needs_archive": SWITCH, "release": _HASH},
    "content_release pruned": {"removed": _TEXTS, "freed_bytes": COUNT},
    "gpu_facts": {"gpu_facts": OBJECT, "installation": OBJECT, "checks": _CHECKS, "broken": _TEXTS},
    "host_facts": {"ansible_facts": OBJECT},
    "host_doctor": {
        "checks": _CHECKS,
        "alive": _TEXTS,
        "deployed": _TEXT,
        "listened": SWITCH,
        "began": _MOMENT,
        "ended": _MOMENT,
    },
    "host_doctor listening": {"machine": _TEXT, "free": _COUNTS, "held": _COUNTS, "listener": OBJECT},
    "host_doctor probed": {
        "names": mapping_of(_TEXTS, MOST_ENTRIES),
        "probes": _objects(
            {
                "host": _TEXT,
                "ports": _COUNTS,
                "outcome": _TEXT,
                "source": _TEXT,
                "name": _TEXT,
                "machine": _TEXT,
            }
        ),
    },
    "host_lease": {"problem": _TEXT},
    "host_requirements": {
        "environment": one_of(*(each.name for each in every_environment())),
        "python": _PYTHON,
        "programs": mapping_of(matching("the name of an environment", ENVIRONMENT_NAME)),
        # A role runs the module that a system names, so it must be a system that is known here: `_of_facts`
        # compares it with the systems that were sent to the host.
        "system": mapping_of(TEXT),
    },
    "host_reset": {"removed": _TEXTS, "stays": _TEXTS},
    "host_runs": {
        "runs": _objects(
            {
                "run_id": matching("the id of a run", RUN_ID),
                "size": COUNT,
                "changed": _MOMENT,
                "global_step": _FIGURE,
            }
        )
    },
    "host_runs removed": {"removed": _TEXTS, "freed_bytes": COUNT},
    "host_runs packed": {"path": _TEXT, "size": COUNT, "files": COUNT, "left_out": _TEXTS},
    "files": {"changed_paths": _TEXTS, "removed_paths": _TEXTS},
    "port_fence": {"changed_paths": _TEXTS},
    "python_environment": {"needs_archive": SWITCH, "not_given": optional(_TEXT)},
    "ssh_identity": {
        "user_key": _TEXT,
        "host_key": _TEXT,
        "certificate": _TEXT,
        "authority": _TEXT,
        "cluster": _TEXT,
        "prepared": SWITCH,
        "proven": SWITCH,
        "addresses": _TEXTS,
        "deployed_by": _PERSON,
    },
    "ssh_login": {"proven": SWITCH},
}


def checked(module: str, answer: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return {field: value} of a module's answer, with the known fields only, each checked.

    `module` is the name of a module of this collection, or an entry of ANSWERS for a fact of `host_facts`;
    `arguments` are the arguments of its call. If the answer has `failed`, only the fields of every answer are
    kept. An invalid plan in an answer of `trainer_tasks` becomes {}, which means not deployed. Raises
    UnusableError, which names the invalid field, also for an unknown module.
    """
    name = f"{module} {arguments.get('state')}"
    rules = ANSWERS.get(name if name in ANSWERS else module)
    if rules is None:
        raise UnusableError(f"psfleet has no description of what {module} answers")
    if "tasks" in rules and arguments.get("details"):
        rules = {**rules, "tasks": _objects(_DETAILED_TASK)}
    kept = _valid_fields(answer, COMMON_FIELDS)
    if kept.get("failed"):
        kept.setdefault("msg", "it does not say why it failed")
    else:
        kept |= _valid_fields(answer, rules)
    if "ansible_facts" in kept:
        kept["ansible_facts"] = _of_facts(kept["ansible_facts"], arguments)
    if "tasks" in kept:
        kept |= _of_tasks(kept, arguments)
    try:
        json.dumps(kept, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise UnusableError(f"it holds bytes that are not text: {error}") from error
    return kept


def _of_facts(facts: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"psfleet_<part>": checked value} for each part of `host_facts` that `arguments` ask for.

    Raises UnusableError if a part is missing or invalid.
    """
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
                raise UnusableError(f"system is {as_given(found['system'])}; expected a known system")
    return kept


def _of_tasks(kept: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `tasks` of an answer of `trainer_tasks`, and its plan `deployed`, {} if that is invalid.

    If the host only confirms the hash of the plan, the result lacks `deployed`. Raises UnusableError for a
    task that was not asked for.
    """
    requested = [task_name(task["job"], task["index"]) for task in arguments["tasks"]]
    tasks = [{**task, "reason": in_short(task["reason"])} for task in kept["tasks"]]
    for place, task in enumerate(tasks):
        known = task["job"] in UNIT_JOBS if arguments.get("others") else task["name"] in requested
        if not known or task["name"] != task_name(task["job"], task["index"]):
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


def _valid_fields(answer: Mapping[str, Any], rules: Mapping[str, Rule]) -> dict[str, Any]:
    """Return the fields of an answer that have rules, converted by them; other fields are left out.

    Raises UnusableError with the first problem, such as a missing field whose rule is not optional.
    """
    kept, problems = convert_fields(answer, rules)
    if problems:
        raise UnusableError(problems[0])
    return kept
