"""What is wrong with the groups of an inventory: tf_cluster and its children ps, worker and chief."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from psfleet.inventory.problems import PARENT, InventoryProblem, named
from trainer.contract.plan import JOBS, Job

Groups = Mapping[str, Sequence[str]]


def group_problems(groups: Groups, children: Sequence[str], *, program: bool) -> list[InventoryProblem]:
    """Return what is wrong with the groups (name -> hosts) and the child groups of tf_cluster.

    `program`: whether a program of the user's runs. It may do without ps, and may have a chief.
    """
    if PARENT not in groups:
        hint = _similar_group(PARENT, groups)
        what = f"there is no group {PARENT}{hint}; expected {PARENT} with the child groups ps and worker"
        return [InventoryProblem(what)]
    required: list[Job] = ["worker"] if program else ["ps", "worker"]
    problems = [
        *(problem for job in JOBS for problem in _job_problems(job, groups, children, required)),
        *_chief_problems(groups, program=program),
        *_stray_groups(children),
        *_stray_hosts(groups, children),
        *_names_alike(groups),
    ]
    return [InventoryProblem(problem) for problem in problems]


def _similar_group(name: str, groups: Iterable[str]) -> str:
    close = get_close_matches(name, sorted(set(groups) - {"all", "ungrouped", *JOBS, PARENT}), n=1)
    return f" (there is {close[0]!r})" if close else ""


def _job_problems(job: Job, groups: Groups, children: Sequence[str], required: Sequence[Job]) -> list[str]:
    hosts = groups.get(job)
    if hosts and job not in children:
        return [f"the group {job} is not below {PARENT}; expected it among {PARENT}'s children"]
    if hosts or job not in required:
        return []
    if hosts is not None:
        return [f"the group {job} is empty; expected one host or more in it"]
    if job in map(_meant_job, children):
        return []  # said of the child
    hint = _similar_group(job, groups)
    return [f"there is no group {job}{hint}; expected a child group {job} of {PARENT} with one host or more"]


def _meant_job(group: str) -> str:
    """Return the job whose misspelling the group's name is, "" where it is none."""
    return "" if group in JOBS else next(iter(get_close_matches(group, JOBS, n=1)), "")


def _chief_problems(groups: Groups, *, program: bool) -> list[str]:
    hosts = groups.get("chief", ())
    if hosts and not program:
        what = f"the group chief holds {named(hosts)}, and trainer_program is empty"
        return [f"{what}; expected no such group: worker0 is the chief of the trainer's own models"]
    if len(hosts) > 1:
        return [f"the group chief holds {len(hosts)} hosts, {named(hosts)}; expected one"]
    return []


def _stray_groups(children: Sequence[str]) -> list[str]:
    problems = []
    for group in children:
        if group not in JOBS:
            meant = _meant_job(group)
            advice = f"did you mean {meant}?" if meant else f"expected groups of another kind beside {PARENT}"
            problems.append(f"the group {group} below {PARENT} is neither ps nor worker; {advice}")
    return problems


def _stray_hosts(groups: Groups, children: Sequence[str]) -> list[str]:
    placed = {host for group in (*children, *JOBS) for host in groups.get(group, ())}
    stray = [host for host in groups[PARENT] if host not in placed]
    if not stray:
        return []
    return [f"neither ps nor worker holds {named(stray)} of {PARENT}; expected each host in one or both"]


def _names_alike(groups: Groups) -> list[str]:
    """SSH knows hosts by small letters, in certificates and known hosts: one would pass for the other."""
    names: dict[str, list[str]] = {}
    for host in groups[PARENT]:
        names.setdefault(host.lower(), []).append(host)
    return [
        f"the hosts {named(hosts)} differ in capitals alone; expected names that differ otherwise, too"
        for hosts in names.values()
        if len(hosts) > 1
    ]
