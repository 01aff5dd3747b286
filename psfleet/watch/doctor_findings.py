"""What doctor.yml found on the hosts of a cluster, put together: a row for each host, and what is wrong.

Pure: `Findings.of` takes the hosts' answers, `psfleet.watch.doctor_table` shows it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from psfleet.watch.wording import counted, first_of, in_a_line
from trainer.host.check import Check, State
from trainer.host.environment import TENSORFLOW_VERSION

# The columns of the table: of the host, of its GPUs, and of what is deployed there.
GROUPS = (
    ("system", "processor", "libc", "python", "memory", "disk", "clock", "names", "ports"),
    ("bus", "driver", "nvidia-smi", "uvm", "gpus"),
    ("environment", "tensorflow", "libraries", "devices", "product"),
)
CHECKS = tuple(name for group in GROUPS for name in group)
CONNECTION = "connection"
MEND_CONNECTION = (
    "mend ansible_host, ansible_port, ansible_user or the login key in the inventory, or sudo or python3 on "
    "the host"
)
_WORST: tuple[State, ...] = ("failed", "warning", "ok", "skipped")


class HostCheck(NamedTuple):
    """A check of a host, or of a task there where `task` names one ("worker0")."""

    check: Check
    task: str = ""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "HostCheck":
        """Return the check as a host's answer holds it, in one line and without what steers a terminal."""
        words = {name: in_a_line(content.get(name, "")) for name in ("task", "name", "found", "remedy")}
        state = content.get("state")
        if state not in _WORST:
            return cls(Check(words["name"], "failed", f"the host said {in_a_line(state)}", "deploy again"))
        return cls(Check(words["name"], state, words["found"], words["remedy"]), words["task"])


@dataclass(frozen=True)
class HostRow:
    """A host of the table; `problem` is why it gave no answer, "" where it did."""

    host: str
    checks: tuple[HostCheck, ...]
    problem: str = ""

    def state(self, name: str) -> State | None:
        """Return the worst state of a check over the host's tasks, None where it has no such check."""
        found = {entry.check.state for entry in self.checks if entry.check.name == name}
        return next((state for state in _WORST if state in found), None)

    def worst_of(self, names: Iterable[str]) -> State:
        """Return the worst state of some of its checks; that of a host without an answer is "failed"."""
        found = {"failed"} if self.problem else {self.state(name) for name in names}
        return next((state for state in _WORST if state in found), "skipped")


@dataclass(frozen=True)
class Trouble:
    """What failed or deserves a warning, and what to do.

    `found` maps words to where that was found: hosts, with a task's name in brackets where it is a task's.
    """

    name: str
    state: State
    remedy: str
    found: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Findings:
    """The rows in the order of the inventory, the names of the columns, what is wrong, what else to say."""

    rows: tuple[HostRow, ...]
    names: tuple[str, ...]
    troubles: tuple[Trouble, ...]
    notes: tuple[str, ...]
    summary: str

    @property
    def failure(self) -> str:
        """The summary where a check failed or a host gave no answer, else ""."""
        return self.summary if any(row.worst_of(self.names) == "failed" for row in self.rows) else ""

    @classmethod
    def of(cls, plan: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]) -> "Findings":
        """Put together what the hosts answered.

        `plan` is today's (`plan.json` in docs/contracts.md). `answers` maps each host that was asked to
        `problem` ("" where it answered), `checks`, `deployed` and `alive`, as the action host_doctor returns.
        """
        rows = _with_one_version([_row(host, answer) for host, answer in answers.items()], answers)
        present = {entry.check.name for row in rows for entry in row.checks if entry.check.state != "skipped"}
        left_out = sorted({str(task["host"]) for task in plan["tasks"]} - set(answers))
        return cls(
            rows=tuple(rows),
            names=(*(name for name in CHECKS if name in present), *sorted(present - set(CHECKS))),
            troubles=tuple(_troubles(rows)),
            notes=tuple(_notes(answers, left_out)),
            summary=_summary(rows),
        )


def _row(host: str, answer: Mapping[str, Any]) -> HostRow:
    problem = in_a_line(answer.get("problem", "") if answer else "gave no answer")
    checks = [HostCheck.from_json(check) for check in answer.get("checks", ())]
    return HostRow(host, tuple(sorted(checks, key=lambda entry: _place(entry.check.name))), problem)


def _with_one_version(rows: Sequence[HostRow], answers: Mapping[str, Mapping[str, Any]]) -> list[HostRow]:
    """Return the rows; where hosts have different versions of TensorFlow, those with another one fail."""
    versions: dict[str, list[str]] = {}
    for host, answer in answers.items():
        if answer.get("deployed"):
            versions.setdefault(in_a_line(answer["deployed"]), []).append(host)
    if len(versions) < 2:
        return list(rows)
    which = "; ".join(f"TensorFlow {version} on {first_of(hosts)}" for version, hosts in versions.items())
    check = Check(
        "environment",
        "failed",
        f"the hosts compute with different versions: {which}",
        "run `ansible-playbook deploy.yml` on all hosts, between runs",
    )
    return [
        HostRow(row.host, (*row.checks, HostCheck(check)), row.problem)
        if (version := answers[row.host].get("deployed")) and version != TENSORFLOW_VERSION
        else row
        for row in rows
    ]


def _troubles(rows: Iterable[HostRow]) -> list[Trouble]:
    """Return what failed, then what deserves a warning, each by column and by what to do about it."""
    found: dict[tuple[State, str, str], Trouble] = {}
    for row in rows:
        for check, task in _wrong(row):
            key = (check.state, check.name, check.remedy)
            trouble = found.setdefault(key, Trouble(check.name, check.state, check.remedy))
            where = f"{row.host} ({task})" if task else row.host
            trouble.found.setdefault(check.found, []).append(where)
    return sorted(found.values(), key=lambda trouble: (_WORST.index(trouble.state), _place(trouble.name)))


def _place(name: str) -> int:
    """Return the place of a check's column; connection comes first, a name that is not known last."""
    return (CONNECTION, *CHECKS).index(name) if name in (CONNECTION, *CHECKS) else len(CHECKS) + 1


def _wrong(row: HostRow) -> Iterator[HostCheck]:
    if row.problem:
        yield HostCheck(Check(CONNECTION, "failed", row.problem, MEND_CONNECTION))
    yield from (entry for entry in row.checks if entry.check.state in {"failed", "warning"})


def _notes(answers: Mapping[str, Mapping[str, Any]], left_out: Sequence[str]) -> Iterator[str]:
    bare = [
        host
        for host, answer in answers.items()
        if answer and not answer.get("problem") and not answer["deployed"]
    ]
    if bare:
        yield (
            f"Not deployed: {first_of(bare)}. TensorFlow was not tried there; "
            "`ansible-playbook deploy.yml` makes them ready."
        )
    alive = {host: answer["alive"] for host, answer in answers.items() if answer.get("alive")}
    if alive:
        where = [f"{', '.join(map(in_a_line, tasks))} on {host}" for host, tasks in alive.items()]
        yield f"A run is going on, before which the doctor steps back: {first_of(where)}."
    if left_out:
        yield f"Left out by --limit: {first_of(left_out)}."


def _summary(rows: Sequence[HostRow]) -> str:
    states = [row.state(name) for row in rows for name in {entry.check.name for entry in row.checks}]
    looked = len(states) - states.count("skipped")
    parts = [f"{counted(len(rows), 'host')}, {counted(looked, 'check')}"]
    shown: tuple[tuple[State, str], ...] = (("failed", "failed"), ("warning", "with a warning"))
    for state, words in shown:
        if count := states.count(state):
            on = {row.host for row in rows if any(entry.check.state == state for entry in row.checks)}
            parts.append(f"{count} {words} on {counted(len(on), 'host')}")
    silent = [row for row in rows if row.problem]
    if silent:
        parts.append(f"{counted(len(silent), 'host')} not reached")
    return f"{parts[0]}: {', '.join(parts[1:]) or 'all well'}"
