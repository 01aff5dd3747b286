"""Lists all runs, from their folders on the controller and from the files that hosts still have."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from plugins.module_utils.disk_space import freeable_bytes
from psfleet.evidence.runs_directory import newest_first
from psfleet.evidence.verdict import FILE_NAME
from psfleet.run.folder import has_files_on_hosts, state_of
from psfleet.watch.screen_text import in_a_line
from psfleet.watch.status import NO_ANSWER, NO_RUN, has_answered, silent_hosts
from trainer.contract.json_files import read_object
from trainer.contract.model_files import model_name
from trainer.host.task_traces import number
from trainer.host.wording import counted, first_of, readable

NOT_HERE = "not here"  # only hosts know of the run
# {whether something was left out: the word for it}; None if an older psfleet collected the run.
_COLLECTED = {None: "unknown", True: "in part", False: "yes"}
_STYLES = {"proven": "good", "completed": "good", "not proven": "bad", "cannot tell": "warning"}


@dataclass(frozen=True)
class RunRow:
    """A run, as runs.yml lists it.

    `trains` is the name of its model or program, `steps` its global steps (None: unknown), `verdict` its
    verdict, "stopped", or "" without one. `collected` says in words whether the files of the run were
    collected. `began` is in Unix seconds; for a run without a folder here, it is the last change on a host.
    `here` is the size of the run's folder in bytes, None without a folder, and `hosts` is {host: bytes of the
    run's files there}. `lost` are the workers without which the run was judged.
    """

    run_id: str
    trains: str = ""
    steps: float | None = None
    verdict: str = ""
    collected: str = NOT_HERE
    began: float = 0.0
    here: int | None = None
    hosts: Mapping[str, int] = field(default_factory=dict)
    lost: tuple[str, ...] = ()

    @property
    def style(self) -> str:
        """The style of the row: a key of `STYLES` in psfleet/watch/console.py, by the verdict."""
        return _STYLES.get(self.verdict, "plain")

    @property
    def judged(self) -> str:
        """The verdict, and the workers without which the run was judged; "" without a verdict.

        Example: "proven without worker2".
        """
        return self.verdict + (f" without {first_of(self.lost, 2)}" if self.verdict and self.lost else "")

    def with_host(self, host: str, answer: Mapping[str, Any]) -> "RunRow":
        """Return the row, updated by a host's entry for the run as the module `host_runs` gives it.

        The host's size is added. The highest step of any host counts, unless the run is judged; the latest
        time of any host counts, unless the run has a folder here.
        """
        steps, began = answer["global_step"], answer["changed"]
        return replace(
            self,
            hosts={**self.hosts, host: answer["size"]},
            # The controller knows the steps of a judged run, and the start of a run with a folder, better.
            steps=self.steps if self.verdict or steps is None else max(self.steps or 0, steps),
            began=max(self.began, began) if self.here is None else self.began,
        )


@dataclass(frozen=True)
class RunList:
    """The rows, newest first, and notes about hosts that did not answer.

    `failure` is the message if no host answered, else "". `summary` counts the runs and their bytes.
    """

    rows: tuple[RunRow, ...]
    notes: tuple[str, ...]
    failure: str
    summary: str

    @classmethod
    def of(cls, here: Iterable[RunRow], answers: Mapping[str, Mapping[str, Any]]) -> "RunList":
        """Return the list of the runs that are `here` or in the answers; a run in both has one row.

        `here` are the runs with a folder on the controller. `answers` is {host: result of the module
        `host_runs`}, with `problem` ("" if it answered) and `runs`.
        """
        rows = {row.run_id: row for row in here}
        for host, answer in answers.items():
            for described in answer.get("runs", ()):
                row = rows.get(described["run_id"], RunRow(described["run_id"]))
                rows[row.run_id] = row.with_host(host, described)
        ordered = sorted(rows.values(), key=lambda row: row.began, reverse=True)
        answered = any(map(has_answered, answers.values()))
        return cls(
            tuple(ordered), tuple(silent_hosts(answers)), "" if answered else NO_ANSWER, _summary(ordered)
        )


def _summary(rows: Sequence[RunRow]) -> str:
    if not rows:
        return NO_RUN
    here = [row.here for row in rows if row.here is not None]
    sizes = [size for row in rows for size in row.hosts.values()]
    hosts = {host for row in rows for host in row.hosts}
    return (
        f"{counted(len(rows), 'run')}: {len(here)} here ({readable(sum(here))}), "
        f"{sum(bool(row.hosts) for row in rows)} on {counted(len(hosts), 'host')} ({readable(sum(sizes))})"
    )


def runs_here(runs_directory: Path) -> list[RunRow]:
    """Return the runs that have a folder on the controller, newest first; [] if there are none.

    A damaged value in the folder counts as unknown.
    """
    return [_read(folder) for folder in newest_first(runs_directory)]


def _lost_in(figures: object) -> tuple[str, ...]:
    """Return the names of the workers without which a run was judged, from the figures of its verdict.

    Return () if there are none, or if the figures are missing or damaged.
    """
    lost = figures.get("lost") if isinstance(figures, dict) else None
    entries = lost if isinstance(lost, list) else []
    return tuple(in_a_line(str(each.get("task")), 20) for each in entries if isinstance(each, dict))


def _read(folder: Path) -> RunRow:
    settings, verdict = (read_object(folder / name) for name in ("settings.json", FILE_NAME))
    program, training, figures = settings.get("program"), settings.get("training"), verdict.get("figures")
    trains = ""
    if isinstance(program, dict):
        trains = str(program.get("name") or PurePosixPath(str(program.get("file", ""))).name)
    elif isinstance(training, dict):
        trains = model_name(str(training.get("model", "")))
    state, left_out = state_of(folder), has_files_on_hosts(folder)
    collected = "not yet" if state == "running" else _COLLECTED[left_out]
    return RunRow(
        run_id=in_a_line(folder.name, 63),
        trains=in_a_line(trains, 40),
        steps=number(figures.get("global_steps")) if isinstance(figures, dict) else None,
        verdict=in_a_line(verdict.get("verdict") or ("stopped" if state == "stopped" else ""), 20),
        lost=_lost_in(figures),
        collected=collected,
        began=(folder / "plan.json").stat().st_mtime,
        here=freeable_bytes(folder),
    )
