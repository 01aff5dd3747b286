"""Combines what doctor.yml found on the hosts of a cluster: a row for each host, and the problems.

Pure functions: `Findings.of` takes the hosts' answers, `psfleet.watch.doctor_table` shows the result.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plugins.module_utils.environments.environment import TENSORFLOW_VERSION
from psfleet.watch.hints import remedies
from psfleet.watch.peer_findings import PEERS, peer_checks
from psfleet.watch.screen_text import in_a_line
from trainer.host.check import Check, State
from trainer.host.wording import counted, first_of, grouped

# The columns of the table, in groups: host, GPUs, and deployment.
GROUPS = (
    (
        "system",
        "processor",
        "libc",
        "python",
        "memory",
        "disk",
        "data",
        "clock",
        "names",
        "ssh",
        "ports",
        PEERS,
    ),
    ("bus", "driver", "nvidia-smi", "uvm", "gpus"),
    ("environment", "fence", "tensorflow", "libraries", "devices", "product"),
)
CHECKS = tuple(name for group in GROUPS for name in group)
CONNECTION = "connection"
_WORST: tuple[State, ...] = ("failed", "warning", "ok", "skipped")


@dataclass(frozen=True)
class HostRow:
    """A host of the table, with its checks sorted by the order of the columns.

    `problem` says why the host did not answer, or is "".
    """

    host: str
    checks: tuple[Check, ...]
    problem: str = ""

    @classmethod
    def of(cls, host: str, answer: Mapping[str, Any], peers: Iterable[Check] = ()) -> "HostRow":
        """Return a host's row, with each text in one line and without characters that steer a terminal.

        `answer` is the result of the action host_doctor; {} means that the host gave no answer, which becomes
        the row's `problem`. `peers` are the host's checks from `peer_checks`.
        """
        problem = in_a_line(answer.get("problem", "") if answer else "gave no answer")
        checks = map(_check, (*answer.get("checks", ()), *(check.to_json() for check in peers)))
        return cls(host, tuple(sorted(checks, key=lambda check: _place(check.name))), problem)

    def state(self, *names: str) -> State | None:
        """Return the worst state of the named checks: "failed", "warning", "ok", then "skipped".

        A check may occur several times, once for each task of the host. Return None if the host has none of
        them. A host that did not answer is "failed".
        """
        found = {"failed"} if self.problem else {check.state for check in self.checks if check.name in names}
        return next((state for state in _WORST if state in found), None)


def _check(content: Mapping[str, Any]) -> Check:
    texts = {field: in_a_line(content[field]) for field in ("name", "found", "remedy", "task")}
    return Check(**texts, state=content["state"])


@dataclass(frozen=True)
class Trouble:
    """A failed check or a warning on some hosts, and its remedy.

    `name` is the name of the check. `found` is {finding: hosts that have it}. A host that has it because of a
    task is written as "host (task)".
    """

    name: str
    state: State
    remedy: str
    found: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Findings:
    """What doctor.yml shows: the `rows` in the order of the answers, and `names`, the checks with a column.

    `troubles` are the failures, then the warnings. `notes` are sentences about hosts, and `summary` is one
    sentence about all checks.
    """

    rows: tuple[HostRow, ...]
    names: tuple[str, ...]
    troubles: tuple[Trouble, ...]
    notes: tuple[str, ...]
    summary: str

    @property
    def failure(self) -> str:
        """The summary if a check failed or a host did not answer; else "", also if there are warnings."""
        return self.summary if any(row.state(*self.names) == "failed" for row in self.rows) else ""

    @classmethod
    def of(cls, plan: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]) -> "Findings":
        """Return the findings from the hosts' answers.

        `plan` is the plan of today's inventory (`plan.json` in docs/contracts.md). `answers` is {queried
        host: result of the action host_doctor}, with `problem` ("" if it answered), `checks`, `deployed`,
        `alive`, `fence` and `peers`. Hosts of the plan that are not queried are named in the notes.
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
    """Return the rows, with a failed check added on hosts with another TensorFlow than psfleet's version.

    Nothing is added if all deployed hosts have the same version, whichever it is.
    """
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
    """Return the failures, then the warnings, each in the order of the columns; [] if there are none.

    Findings of the same check with the same state and remedy share a Trouble. A host that did not answer
    counts as a failed check `connection`; its other checks are left out.
    """
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
    """Return the position of a check in the order of the columns.

    `connection` has position 0; an unknown check has the last position.
    """
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
        yield f"A run is going on, and its tasks have priority over the doctor: {first_of(alive)}."
    if left_out:
        also = " Connections between these and the other hosts were not tried." if peers else ""
        yield f"Left out by --limit: {first_of(left_out)}.{also}"


def _summary(rows: Sequence[HostRow]) -> str:
    found = [(row.state(name), row.host) for row in rows for name in {check.name for check in row.checks}]
    hosts_with = grouped(found)
    performed = len(found) - len(hosts_with.get("skipped", ()))
    parts = []
    shown: tuple[tuple[State, str], ...] = (("failed", "failed"), ("warning", "with a warning"))
    for state, words in shown:
        if hosts := hosts_with.get(state):
            parts.append(f"{len(hosts)} {words} on {counted(len(set(hosts)), 'host')}")
    if silent := [row for row in rows if row.problem]:
        parts.append(f"{counted(len(silent), 'host')} not reached")
    return f"{counted(len(rows), 'host')}, {counted(performed, 'check')}: {', '.join(parts) or 'all well'}"
