"""What doctor.yml found on the hosts of a cluster, put together: a row for each host, and what is wrong.

Pure: `Findings.of` takes the hosts' answers, `psfleet.watch.doctor_table` shows it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psfleet.watch.hints import remedies
from psfleet.watch.peer_findings import PEERS, peer_checks
from psfleet.watch.wording import in_a_line
from trainer.host.check import Check, State
from trainer.host.environment import TENSORFLOW_VERSION
from trainer.host.wording import counted, first_of, grouped

# The columns of the table: of the host, of its GPUs, and of what is deployed there.
GROUPS = (
    ("system", "processor", "libc", "python", "memory", "disk", "data", "clock", "names", "ports", PEERS),
    ("bus", "driver", "nvidia-smi", "uvm", "gpus"),
    ("environment", "fence", "tensorflow", "libraries", "devices", "product"),
)
CHECKS = tuple(name for group in GROUPS for name in group)
CONNECTION = "connection"
_WORST: tuple[State, ...] = ("failed", "warning", "ok", "skipped")


@dataclass(frozen=True)
class HostRow:
    """A host of the table; `problem` is why it gave no answer, "" where it did."""

    host: str
    checks: tuple[Check, ...]
    problem: str = ""

    @classmethod
    def of(cls, host: str, answer: Mapping[str, Any], peers: Iterable[Check] = ()) -> "HostRow":
        """Read a host's answer, each word in one line and without what steers a terminal."""
        problem = in_a_line(answer.get("problem", "") if answer else "gave no answer")
        checks = map(_check, (*answer.get("checks", ()), *(check.to_json() for check in peers)))
        return cls(host, tuple(sorted(checks, key=lambda check: _place(check.name))), problem)

    def state(self, *names: str) -> State | None:
        """Return the worst state of some checks, over the host's tasks; None where it has no such check."""
        found = {"failed"} if self.problem else {check.state for check in self.checks if check.name in names}
        return next((state for state in _WORST if state in found), None)


def _check(content: Mapping[str, Any]) -> Check:
    told = {field: in_a_line(content[field]) for field in ("name", "found", "remedy", "task")}
    return Check(**told, state=content["state"])


@dataclass(frozen=True)
class Trouble:
    """What failed or deserves a warning, and what to do.

    `found` maps words to where that was found: hosts, with a task's name in brackets where it is a task's.
    """

    name: str
    state: State
    remedy: str
    found: Mapping[str, Sequence[str]]


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
        return self.summary if any(row.state(*self.names) == "failed" for row in self.rows) else ""

    @classmethod
    def of(cls, plan: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]) -> "Findings":
        """Put together what the hosts answered.

        `plan` is today's (`plan.json` in docs/contracts.md). `answers` maps each host that was asked to
        what the action host_doctor returns: `problem` ("" where it answered), `checks`, `deployed`, `alive`,
        `fence` and `peers`.
        """
        peers = peer_checks(plan, answers)
        rows = [HostRow.of(host, answer, peers.get(host, ())) for host, answer in answers.items()]
        rows = _with_one_version(rows, answers)
        present = {check.name for row in rows for check in row.checks if check.state != "skipped"}
        left_out = sorted({str(task["host"]) for task in plan["tasks"]} - set(answers))
        return cls(
            rows=tuple(rows),
            names=(*(name for name in CHECKS if name in present), *sorted(present - set(CHECKS))),
            troubles=tuple(_troubles(rows)),
            notes=tuple(_notes(answers, left_out, peers=bool(peers))),
            summary=_summary(rows),
        )


def _with_one_version(rows: Sequence[HostRow], answers: Mapping[str, Mapping[str, Any]]) -> list[HostRow]:
    """Return the rows; where hosts have different versions of TensorFlow, those with another one fail."""
    deployed = {
        host: in_a_line(answer["deployed"]) for host, answer in answers.items() if answer.get("deployed")
    }
    versions = grouped((version, host) for host, version in deployed.items())
    if len(versions) < 2:
        return list(rows)
    which = "; ".join(f"TensorFlow {version} on {first_of(hosts)}" for version, hosts in versions.items())
    check = Check(
        "environment",
        "failed",
        f"the hosts compute with different versions: {which}",
        "run `ansible-playbook deploy.yml` on all hosts, between runs",
    )
    other = {host for host, version in deployed.items() if version != TENSORFLOW_VERSION}
    return [replace(row, checks=(*row.checks, check)) if row.host in other else row for row in rows]


def _troubles(rows: Iterable[HostRow]) -> list[Trouble]:
    """Return what failed, then what deserves a warning, each by column and by what to do about it."""
    wrong = [
        (check, f"{row.host} ({check.task})" if check.task else row.host)
        for row in rows
        for check in ([_silence(row.problem)] if row.problem else row.checks)
        if check.state in {"failed", "warning"}
    ]
    alike = grouped(((check.name, check.state, check.remedy), (check.found, where)) for check, where in wrong)
    troubles = [Trouble(*what, grouped(found)) for what, found in alike.items()]
    return sorted(troubles, key=lambda trouble: (_WORST.index(trouble.state), _place(trouble.name)))


def _silence(problem: str) -> Check:
    return Check(CONNECTION, "failed", problem, *remedies([problem]))


def _place(name: str) -> int:
    """Return the place of a check's column; connection comes first, a name that is not known last."""
    return (CONNECTION, *CHECKS).index(name) if name in (CONNECTION, *CHECKS) else len(CHECKS) + 1


def _notes(
    answers: Mapping[str, Mapping[str, Any]], left_out: Sequence[str], *, peers: bool
) -> Iterator[str]:
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
    alive = [
        f"{', '.join(map(in_a_line, answer['alive']))} on {host}"
        for host, answer in answers.items()
        if answer.get("alive")
    ]
    if alive:
        yield f"A run is going on, and has the processors before the doctor: {first_of(alive)}."
    if left_out:
        also = " The others were not asked whether they reach these, nor these." if peers else ""
        yield f"Left out by --limit: {first_of(left_out)}.{also}"


def _summary(rows: Sequence[HostRow]) -> str:
    found = [(row.state(name), row.host) for row in rows for name in {check.name for check in row.checks}]
    hosts_with = grouped(found)
    looked = len(found) - len(hosts_with.get("skipped", ()))
    parts = []
    shown: tuple[tuple[State, str], ...] = (("failed", "failed"), ("warning", "with a warning"))
    for state, words in shown:
        if hosts := hosts_with.get(state):
            parts.append(f"{len(hosts)} {words} on {counted(len(set(hosts)), 'host')}")
    if silent := [row for row in rows if row.problem]:
        parts.append(f"{counted(len(silent), 'host')} not reached")
    return f"{counted(len(rows), 'host')}, {counted(looked, 'check')}: {', '.join(parts) or 'all well'}"
