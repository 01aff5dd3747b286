"""A reading of the lead's `progress.json`, whose fields are in docs/contracts.md, made safe to show."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainer.host.error_lines import in_short, is_of_a_library
from trainer.host.task_traces import LOG_END_BYTES, number
from trainer.host.wording import counted, cut, first_of

# Colours and cursor movements. They are removed whole: without its escape character, the rest of a sequence
# would be noise.
_CONTROL_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_METRICS_SHOWN = 4
# A connection may change the ends of lines, and so the number of bytes, by up to this many.
_ABOUT = 100


@dataclass(frozen=True)
class Progress:
    """A reading of `progress.json`.

    Attributes:
        phase: "waiting", "training", "ending", "finished", "stopped" or "failed"; "starting" if unknown.
        wall: when the file was written, in Unix seconds of the lead's clock.
        global_step: the run's global step; 0 if unknown.
        last_step: the global step at which the run ends; 0 if unknown.
        loss: the lead's last loss; None if unknown.
        contributions: the number of steps of each worker, by the workers' indices.
        missing: the tasks for which the run waits, with address and reason, in words.
        reason: why the run ended, in words.
        restarts: how often each worker was restarted, by the workers' indices.
        steps_lost: global steps that were lost by restores.
        still_seconds: the time between the loss of a task and the lead's next step, summed over all losses.
        evaluation: the last evaluation during the run, in words.
        elapsed: seconds since the lead's process began; not from the file, added by some callers.
        last_line: the last line of the lead's output; not from the file, added by some callers.

    """

    phase: str
    wall: float = 0.0
    global_step: int = 0
    last_step: int = 0
    loss: float | None = None
    contributions: tuple[int, ...] = ()
    missing: tuple[str, ...] = ()
    reason: str = ""
    restarts: tuple[int, ...] = ()
    steps_lost: int = 0
    still_seconds: float = 0.0
    evaluation: str = ""
    elapsed: float | None = None
    last_line: str = ""

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> "Progress":
        """Return the reading of a JSON object; a missing field, or one of another type, is unknown.

        An unknown field is 0, None, "" or (), its default. A missing `phase` is "starting".
        """
        missing = values.get("missing")
        return cls(
            phase=str(values.get("phase", "starting")),
            wall=number(values.get("wall")) or 0.0,
            global_step=int(number(values.get("global_step")) or 0),
            last_step=int(number(values.get("last_step")) or 0),
            loss=number(values.get("loss")),
            contributions=_counts(values.get("contributions")),
            missing=tuple(_missing_task(entry) for entry in missing) if isinstance(missing, list) else (),
            reason=in_short(str(values.get("reason") or "")),
            restarts=_counts(values.get("restarts")),
            steps_lost=int(number(values.get("steps_lost")) or 0),
            still_seconds=number(values.get("still_seconds")) or 0.0,
            evaluation=_evaluation(values.get("evaluation")),
        )

    def same_content(self, other: "Progress") -> bool:
        """Return whether all fields that come from the file are equal: all but `elapsed` and `last_line`."""
        return replace(self, elapsed=None, last_line="") == replace(other, elapsed=None, last_line="")

    @property
    def waiting(self) -> str:
        """The tasks for which the run waits, in words; "" if it waits for none.

        The text is "waiting for ", the first four tasks, and " and N more" if there are more.
        """
        return f"waiting for {first_of(self.missing, 4, '; ')}" if self.missing else ""

    @property
    def awaited_tasks(self) -> set[str]:
        """The names of all tasks for which the run waits, such as {"ps0"}; empty if it waits for none."""
        return {task.partition(" ")[0] for task in self.missing}

    @property
    def fault_costs(self) -> str:
        """What faults have cost so far, such as "12 steps lost by faults, 9 s without training"; else "".

        0 steps are left out, and so is less than 1 s.
        """
        lost = f"{counted(self.steps_lost, 'step')} lost by faults" if self.steps_lost > 0 else ""
        still = f"{self.still_seconds:.0f} s without training" if self.still_seconds >= 1 else ""
        return ", ".join(filter(None, (lost, still)))

    @property
    def is_over(self) -> bool:
        """Whether the run is over: `phase` is "finished", "stopped" or "failed"."""
        return self.phase in {"finished", "stopped", "failed"}


def last_line_of(end: str) -> str:
    """Return the last line of a task's output as a terminal would show it; "" if there is none.

    Lines of libraries, as `is_of_a_library` says, and lines without a letter or digit do not count, such as
    the "}" that ends printed JSON. `end` has the last LOG_END_BYTES of the output. If it has that many, its
    first line may be cut and is ignored.
    """
    is_cut = len(end.encode(errors="replace")) >= LOG_END_BYTES - _ABOUT
    text = end.lstrip("\r\n").partition("\n")[2] if is_cut else end
    lines = (" ".join(as_drawn(line).split()) for line in reversed(text.split("\n")))
    says = (line for line in lines if any(character.isalnum() for character in line))
    return next((line for line in says if not is_of_a_library(line)), "")


def as_drawn(line: str) -> str:
    """Return a line of a task's output as a terminal would show it, with a space for each control character.

    Colours are removed. After a carriage return within the line, as of a progress bar, only the rest is
    shown.
    """
    # A progress bar begins or ends each redrawing with a carriage return, so only the last part is visible.
    return printable(_CONTROL_SEQUENCE.sub("", line.rstrip("\r").rpartition("\r")[2]))


def printable(text: str) -> str:
    """Return a text with a space for each unprintable character, so that it cannot steer the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def _counts(value: object) -> tuple[int, ...]:
    return tuple(int(number(count) or 0) for count in value) if isinstance(value, list) else ()


def _evaluation(value: object) -> str:
    """Return an evaluation in words, such as "accuracy 0.9611, loss 0.13 at step 1500".

    Of its first four metrics, the numbers are shown. Return "" without a number, or without the step.
    """
    if not isinstance(value, Mapping) or not isinstance(metrics := value.get("metrics"), Mapping):
        return ""
    known = [(str(name), number(metric)) for name, metric in list(metrics.items())[:_METRICS_SHOWN]]
    listing = ", ".join(f"{cut(name, 40)} {metric:.4g}" for name, metric in known if metric is not None)
    step = number(value.get("global_step"))
    return printable(f"{listing} at step {int(step)}") if listing and step is not None else ""


def _missing_task(entry: object) -> str:
    if not isinstance(entry, Mapping):
        return str(entry)
    where = f" at {entry['address']}" if entry.get("address") else ""
    return f"{entry.get('task')}{where} ({entry.get('reason')})"
