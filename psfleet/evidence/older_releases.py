"""Runs of older releases: a check is left out if the release could not record what the check needs.

No date and no version number decides. A task lists in its `started` what its release can record
(trainer/contract/records.py). A release that has no such list could record what any task of its run recorded.
"""

from psfleet.evidence.recorded_run import Run

GRADIENTS, OUTPUTS = "gradients", "finished.sample_outputs"
PLACES, TRAINED = "peers_ready.variables", "trained"
# {what a release must be able to record: what its runs do not show otherwise}
_OF_MODELS = {
    GRADIENTS: "each worker pushed the gradients of its loss",
    OUTPUTS: "each worker uses the parameters that the evaluator found",
}
_OF_PROGRAMS = {
    PLACES: "all parameters were shared",
    TRAINED: "all that the workers trained, to the end, was seen",
}


def could_record(run: Run, what: str) -> bool:
    """Return whether the run's release could record `what`: an event, or a field as `event.field`.

    True if a task lists it in the `writes` of its `started`, or has recorded it. True also if no task
    recorded its start: then the release is not the reason why something is missing.
    """
    event, _, field = what.partition(".")
    records = [record for task in (*run.tasks.values(), run.evaluator) for record in task.records]
    begun = [record for record in records if record.event == "started"]
    listed = any(what in record.text("writes").split() for record in begun)
    done = any(record.event == event and (not field or field in record.fields) for record in records)
    return not begun or listed or done


def unrecorded_clauses(run: Run, observed: bool) -> dict[str, str]:
    """Return {clause: reason} for what is not shown because the run's release was too old to record it.

    A clause such as "all parameters were shared" follows "it is not shown that". Return {} if the release was
    new enough. `observed` is True if psfleet observed the sessions of a program; for other programs, return
    {}.
    """
    asked = _OF_MODELS if run.program is None else _OF_PROGRAMS if observed else {}
    why = f"release {release_of(run)}, which recorded this run, did not record it yet"
    judged = run.parts or (run,)
    return {
        clause: why for what, clause in asked.items() if not all(could_record(part, what) for part in judged)
    }


def release_of(run: Run) -> str:
    """Return the release of the trainer in the chief's last record; "without a name" if it is unknown."""
    return (run.chief.records[-1].release if run.chief.records else "") or "without a name"
