"""What modules answer on hosts, looked at before anything is made of it: a host may say whatever it likes.

An answer that lacks a field, or has one of another kind, is none.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, get_args

from trainer.contract.plan import ClusterPlan
from trainer.contract.settings import as_given
from trainer.host.check import State
from trainer.host.content_directory import HASH_DIGITS
from trainer.host.environment import every_environment
from trainer.host.task_traces import MOST_BYTES, RUN_ID, number
from trainer.host.task_units import UNIT_JOBS


class UnusableError(ValueError):
    """What a host answered is none of what the module can have answered."""


# Of tasks and checks far more than any host has, and of characters more than modules make of a file.
_MOST_ENTRIES, _MOST_CHARACTERS = 4096, 4 * MOST_BYTES
_HASH_OR_NONE = re.compile(rf"([0-9a-f]{{{HASH_DIGITS}}})?")


def _all(kind: str, values: Collection[object]) -> bool:
    return len(values) <= _MOST_ENTRIES and all(map(_KINDS[kind], values))


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str) and len(value) <= _MOST_CHARACTERS,
    "state": lambda value: value in get_args(State),
    "run": lambda value: isinstance(value, str) and bool(RUN_ID.fullmatch(value)),
    "switch": lambda value: isinstance(value, bool),
    "count": lambda value: isinstance(value, int) and (number(value) or -value) >= 0,
    "code": lambda value: value is None or _KINDS["count"](value),
    "moment": lambda value: number(value) is not None,
    "environment": lambda value: value in [each.name for each in every_environment()],
    "hash": lambda value: isinstance(value, str) and bool(_HASH_OR_NONE.fullmatch(value)),
    "hashes": lambda value: isinstance(value, list) and _all("hash", value),
    "figure": lambda value: value is None or number(value) is not None,
    "object": lambda value: isinstance(value, dict),
    "figures": lambda value: isinstance(value, dict) and _all("figure", value.values()),
    "texts": lambda value: isinstance(value, list) and _all("text", value),
    "named texts": lambda value: isinstance(value, dict) and _all("texts", value.values()),
    "counts": lambda value: isinstance(value, list) and _all("count", value),
    "named counts": lambda value: isinstance(value, dict) and _all("count", value.values()),
    "objects": lambda value: isinstance(value, list) and _all("object", value),
}
# Kind -> the names of the fields that are of it.
_Fields = Mapping[str, str]
_ANSWERS: Mapping[str, _Fields] = {
    "trainer_tasks": {
        **{"object": "deployed", "text": "tensorflow unfenced", "hash": "release environment"},
        **{"switch": "lacks_cuda holds_run", "hashes": "programs"},
        **{"objects": "tasks", "named counts": "stopped"},
    },
    "host_doctor": {"objects": "checks", "texts": "alive", "text": "deployed", "moment": "began ended"},
    "host_peers listening": {"text": "machine", "counts": "free held", "object": "listener"},
    "host_peers probed": {"named texts": "names", "objects": "probes"},
    "host_requirements": {"environment": "environment"},
    "host_runs listed": {"objects": "runs"},
    "run_archive": {"text": "path", "count": "size", "texts": "left_out"},
    "wireguard_mesh": {"text": "public_key"},
    "ssh_identity": {"text": "user_key host_key", "switch": "prepared", "texts": "addresses"},
    "ssh_login": {"switch": "proven"},
}
# Each object of a list of this name.
_PARTS: Mapping[str, _Fields] = {
    "checks": {"text": "name found remedy task", "state": "state"},
    "probes": {"text": "host outcome source name machine", "counts": "ports"},
    "runs": {"run": "run_id", "count": "size", "moment": "changed", "figure": "global_step"},
    "tasks": {
        "text": "name job state run_id phase ended_by reason",
        "count": "index restarts pid",
        "switch": "alive failed",
        "code": "exit_code",
        "figure": "bytes_received bytes_sent",
    },
}
_DETAILS: _Fields = {
    "text": "result finished log log_end",
    "figure": "since_seconds cpu_seconds memory_bytes last_step_age_seconds",
    "figures": "last_step",
    "object": "progress",
}


def checked(module: str, answer: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a module (a name without its collection) has answered to these arguments.

    A plan of `trainer_tasks` that is none counts as not deployed. Raises UnusableError saying what is wrong.
    """
    _require(answer, _ANSWERS.get(f"{module} {arguments.get('state')}", _ANSWERS.get(module, {})))
    if "freed_bytes" in answer:  # which is said, whatever the module
        _require(answer, {"count": "freed_bytes"})
    if module != "trainer_tasks":
        return dict(answer)
    asked = [f"{task['job']}{task['index']}" for task in arguments["tasks"]]
    for place, task in enumerate(answer["tasks"]):
        _require(task, _DETAILS if arguments.get("details") else {}, f"tasks[{place}].")
        known = task["job"] in UNIT_JOBS if arguments.get("others") else task["name"] in asked
        if not known or task["name"] != f"{task['job']}{task['index']}":
            raise UnusableError(f"tasks[{place}].name is {as_given(task['name'])}, of which nobody asked")
    if answer["deployed"] == {"hash": arguments.get("plan_hash")}:
        return dict(answer)
    try:
        deployed = ClusterPlan.from_json(answer["deployed"]).to_json()
    except ValueError:
        deployed = {}
    return {**answer, "deployed": deployed}


def _require(content: Mapping[str, Any], fields: _Fields, prefix: str = "") -> None:
    for kind, names in fields.items():
        for name in names.split():
            if name not in content:
                raise UnusableError(f"{prefix}{name} is missing")
            if not _KINDS[kind](content[name]):
                raise UnusableError(f"{prefix}{name} is {as_given(content[name])}, which it cannot be")
            for place, part in enumerate(content[name] if kind == "objects" else ()):
                _require(part, _PARTS[name], f"{name}[{place}].")
