"""Restores of one ps alone: it was lost and restored its part of a checkpoint, and the others kept theirs."""

from collections.abc import Mapping
from dataclasses import dataclass

from psfleet.evidence.answer import Findings, listed
from psfleet.evidence.recorded_run import Run
from trainer.contract.records import Record
from trainer.host.wording import cut

_LONGEST = 20


@dataclass(frozen=True)
class PsRestore:
    """A restore of one ps alone: the ps `task` restored its part of the checkpoint of `checkpoint_step`.

    The other ps were at `global_step` then. `fingerprint` is the fingerprint of what the ps restored.
    """

    task: str
    global_step: int
    checkpoint_step: int
    fingerprint: str

    @property
    def steps_lost(self) -> int:
        """The number of global steps whose effect on this ps is not in the model; never negative."""
        return max(self.global_step - self.checkpoint_step, 0)

    def as_dict(self) -> dict[str, object]:
        """Return {field: value}, as in the figures: all but the fingerprint, and `steps_lost`."""
        steps = {"global_step": self.global_step, "checkpoint_step": self.checkpoint_step}
        return {"task": self.task, **steps, "steps_lost": self.steps_lost}


def ps_restores(run: Run) -> list[PsRestore]:
    """Return a PsRestore for every time that a ps restored alone, in the order of the chief's records.

    Return [] if none did.
    """
    return [_restore_in(record) for record in run.chief.of("ps_restored")]


def steps_of_parts_lost(run: Run) -> float:
    """Return the sum of `steps_lost` over all restores of one ps alone, divided by the number of ps.

    Each ps holds about that part of the model. Return 0.0 if no ps restored alone.
    """
    return sum(restore.steps_lost for restore in ps_restores(run)) / max(len(run.ps), 1)


def ps_restores_in_words(run: Run) -> str:
    """Return which ps restored alone, from which step and when; "" if none did.

    Example: "ps1 restored its part of global step 40 alone at 55". Of more than four, the first four and how
    many more there are.
    """
    return listed(
        f"{cut(restore.task, _LONGEST)} restored its part of global step {restore.checkpoint_step} alone "
        f"at {restore.global_step}"
        for restore in ps_restores(run)
    )


def check_ps_restores(run: Run, findings: Findings) -> None:
    """Check that each ps that was started again has the saved parameters, and that the chief recorded it.

    A contradiction: a ps was started again and the chief restored nothing there; or what a ps restored alone
    is not its part of a checkpoint that the chief had saved before.
    """
    saved: dict[tuple[str, int], set[str]] = {}
    met: Mapping[str, int] = {}
    # The ps whose parameters were restored or initialised since the chief last met them; None means all ps.
    are_set: set[str] | None = set()
    for record in run.chief.records:
        if record.event == "checkpointed":
            for ps, fingerprint in _fingerprints_in(record).items():
                saved.setdefault((ps, record.integer("global_step")), set()).add(fingerprint)
        elif record.event == "ps_restored":
            _compare(run, _restore_in(record), saved, findings)
            are_set = None if are_set is None else {*are_set, record.text("task")}
        elif record.event in {"restored", "initialised"}:
            are_set = None
        elif record.event == "peers_ready":
            now = record.integers("ps_nonces")
            if are_set is not None:
                changed = {ps for ps, nonce in met.items() if now.get(ps, nonce) != nonce}
                findings.wrong += [
                    f"{ps} was started again, and the chief restored nothing there"
                    for ps in sorted(changed - are_set)
                ]
            met, are_set = now, set()


def _compare(
    run: Run, restore: PsRestore, saved: Mapping[tuple[str, int], set[str]], findings: Findings
) -> None:
    """Check one restore of a ps alone: its task is a ps that was started again, and restored what was saved.

    `saved` is {(ps, global step): fingerprints}. A part that the chief did not record is missing evidence.
    """
    name, step = cut(restore.task, _LONGEST), restore.checkpoint_step
    if restore.task not in {ps.name for part in (*run.parts, run) for ps in part.ps}:
        findings.wrong.append(f"{name} restored its part alone, and is no ps of the run")
        return
    ps = run.task(restore.task)
    if len(ps.processes) < 2:
        findings.add(f"{name} restored its part alone, and was never started again", certain=ps.whole)
    known = saved.get((restore.task, step))
    if known is None:
        what = f"the chief did not record what {name} held of the checkpoint of global step {step}"
        findings.lacking.append(f"{what}, of which it restored its part alone")
    elif restore.fingerprint not in known:
        expected = " or ".join(sorted(known))
        what = f"{name} restored {cut(restore.fingerprint, _LONGEST)} alone from global step {step}"
        findings.wrong.append(f"{what}, where {expected} had been saved of it")


def _restore_in(record: Record) -> PsRestore:
    return PsRestore(
        record.text("task"),
        record.integer("global_step"),
        record.integer("checkpoint_step"),
        record.text("fingerprint"),
    )


def _fingerprints_in(record: Record) -> dict[str, str]:
    """Return {ps: fingerprint of its part of the checkpoint} from a record.

    Return {} if the record has no `ps_fingerprints`; entries that are no text are left out.
    """
    recorded = record.fields.get("ps_fingerprints")
    fingerprints = recorded if isinstance(recorded, Mapping) else {}
    return {str(ps): text for ps, text in fingerprints.items() if isinstance(text, str)}
