"""The fields of event records: what their values must be, and which tasks record them (docs/contracts.md)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from .json_values import NUMBER, OBJECT, TEXT, WHOLE, list_of, mapping_of, nullable
from .rules import Rule, as_given, convert_fields, optional
from .task_names import EVALUATOR

VERSION = 1
NUMBER_OR_NULL = nullable(NUMBER)  # null for a number that was not finite
COUNTS, NUMBERS, HISTOGRAM = mapping_of(WHOLE), mapping_of(NUMBER_OR_NULL), list_of(WHOLE)
# The fields of every record, beside `v`.
COMMON: Mapping[str, Rule] = {
    "event": TEXT,
    "run_id": TEXT,
    "job": TEXT,
    "index": WHOLE,
    "host": TEXT,
    "pid": WHOLE,
    "plan_hash": TEXT,
    "release": TEXT,
    "wall": NUMBER,
    "monotonic": NUMBER,
}
# The further fields of each event; `fields_of` says which optional fields a task must record.
EVENTS: Mapping[str, Mapping[str, Rule]] = {
    "started": {
        "nonce": WHOLE,
        "settings": OBJECT,
        "tensorflow": TEXT,
        "python": TEXT,
        "address": TEXT,
        "writes": optional(TEXT),
    },
    "peers_ready": {
        "ps_nonces": COUNTS,
        "worker_nonces": COUNTS,
        "waited_seconds": NUMBER_OR_NULL,
        "global_step": WHOLE,
        "server_nonce": optional(WHOLE),
        "ps_own_nonces": optional(COUNTS),
        "global_step_on": optional(TEXT),
        "variables": optional(COUNTS),
        "counters": optional(COUNTS),
        "doubts": optional(TEXT),
    },
    "initialised": {"global_step": WHOLE, "ps_parameters": optional(OBJECT)},
    "restored": {
        "global_step": WHOLE,
        "checkpoint": TEXT,
        "ps_parameters": optional(OBJECT),
        "fingerprint": optional(TEXT),
        "contributions": optional(COUNTS),
    },
    "ps_restored": {
        "global_step": WHOLE,
        "task": TEXT,
        "checkpoint": TEXT,
        "checkpoint_step": WHOLE,
        "fingerprint": TEXT,
    },
    "trained": {"variables": COUNTS, "computed_on": optional(TEXT)},
    "unseen": {"reason": TEXT},
    "step": {
        "local_step": WHOLE,
        "steps": WHOLE,
        "global_step_before": WHOLE,
        "global_step_after": WHOLE,
        "examples": WHOLE,
        "seconds": NUMBER_OR_NULL,
        "loss": optional(NUMBER_OR_NULL),
        "loss_mean": optional(NUMBER_OR_NULL),
        "staleness_mean": optional(NUMBER_OR_NULL),
        "staleness_max": optional(nullable(WHOLE)),
        "staleness_histogram": optional(HISTOGRAM),
        "own_steps_behind": optional(WHOLE),
        "waiting_seconds": optional(NUMBER),
        "unplaced": optional(WHOLE),
        "batches": optional(WHOLE),
        "trained": optional(WHOLE),
    },
    "gradients": {"global_step": WHOLE, "losses": NUMBERS, "norms": NUMBERS, "fits": NUMBERS},
    "tables": {"global_step": WHOLE, "samples": WHOLE, "examples": WHOLE, "tables": OBJECT},
    "resources": {
        "seconds": NUMBER,
        "cpu_seconds": NUMBER,
        "cores": WHOLE,
        "samples": WHOLE,
        "active_samples": WHOLE,
        "core_wait_seconds": optional(NUMBER),
    },
    "checkpointed": {
        "global_step": WHOLE,
        "path": TEXT,
        "seconds": NUMBER_OR_NULL,
        "fingerprint": optional(TEXT),
        "stopped_seconds": optional(NUMBER),
        "rows_written": optional(WHOLE),
        "deltas": optional(WHOLE),
        "ps_fingerprints": optional(OBJECT),
    },
    "checkpoint_failed": {"global_step": WHOLE, "reason": TEXT},
    "checkpoint_damaged": {"global_step": WHOLE, "path": TEXT, "reason": TEXT},
    "checkpoint_copied": {"global_step": WHOLE, "task": TEXT, "seconds": NUMBER_OR_NULL},
    "checkpoint_copy_failed": {"global_step": WHOLE, "task": TEXT, "reason": TEXT},
    "checkpoint_fetched": {"global_step": WHOLE, "task": TEXT, "seconds": NUMBER_OR_NULL},
    "evaluated": {
        "global_step": WHOLE,
        "metrics": NUMBERS,
        "fingerprint": optional(TEXT),
        "examples": optional(WHOLE),
        "sample_outputs": optional(NUMBERS),
    },
    "recovering": {"reason": TEXT},
    "finished": {
        "reason": TEXT,
        "local_step": optional(WHOLE),
        "global_step": optional(WHOLE),
        "seconds": optional(NUMBER_OR_NULL),
        "examples": optional(WHOLE),
        "loss": optional(NUMBER_OR_NULL),
        "contributions": optional(COUNTS),
        "last_step": optional(WHOLE),
        "fingerprint": optional(TEXT),
        "fingerprint_step": optional(WHOLE),
        "sample_outputs": optional(NUMBERS),
        "gradients_seen": optional(WHOLE),
        "gradients_of_zero": optional(WHOLE),
        "train_examples": optional(WHOLE),
    },
    "failed": {"class": TEXT, "reason": TEXT},
}
# What this release can record: the names of events, and optional fields as `event.field`. A verdict does not
# require of a run what the run's release could not record.
WRITES = " ".join(
    [*EVENTS, *(f"{event}.{name}" for event, of in EVENTS.items() for name in of if of[name].optional)]
)


@lru_cache(maxsize=256)
def fields_of(event: str, job: str, index: int, *, program: bool = False) -> Mapping[str, Rule]:
    """Return {field: rule} of the fields that an event has beside the common ones; {} for an unknown event.

    A rule is optional if this task's record may lack the field. With `program`, the record is a program's,
    and may lack more; such a record has the field `program`, the hash of the program's code.
    """
    required: set[str] = set()
    if event == "step" and not program:
        required = {"loss", "loss_mean", "staleness_mean", "staleness_max"}
    elif event == "finished" and job == "worker" and not program:
        required = {"local_step", "global_step", "seconds", "examples", "loss"}
        required |= {"contributions", "last_step"} if index == 0 else set()
    elif event == "evaluated" and job == EVALUATOR and not program:
        required = {"fingerprint", "examples"}
    return {
        name: replace(rule, optional=rule.optional and name not in required)
        for name, rule in EVENTS.get(event, {}).items()
    }


def record_problems(values: Mapping[str, object]) -> list[str]:
    """Return why an object is not a record of this version, in words; [] if it is a valid record.

    Unknown fields are no problem. If the version, a common field or the event is wrong, the rest is not
    checked.
    """
    if type(values.get("v")) is not int or values["v"] != VERSION:
        return [f"v is {as_given(values.get('v'))}, expected {VERSION}"]
    common, problems = convert_fields(values, COMMON)
    if problems:
        return [*map(str, problems)]
    event = common["event"]
    if event not in EVENTS:
        return [f"event {as_given(event)} is not one of {', '.join(EVENTS)}"]
    rules = fields_of(event, common["job"], common["index"], program="program" in values)
    return [f"{event}: {problem}" for problem in convert_fields(values, rules)[1]]
