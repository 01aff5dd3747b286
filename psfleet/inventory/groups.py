"""Checks the groups of an inventory: tf_cluster and its children ps, worker, chief and evaluator."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from psfleet.inventory.problems import PARENT, InventoryProblem, named
from psfleet.inventory.variables import is_host_name
from trainer.contract.plan import JOBS, Job
from trainer.contract.task_names import EVALUATOR
from trainer.host.wording import grouped

Groups = Mapping[str, Sequence[str]]

# The groups of a program that hold at most one host.
SINGLE_JOBS = ("chief", EVALUATOR)


def group_problems(groups: Groups, children: Sequence[str], *, program: bool) -> list[InventoryProblem]:
    """Return the problems with the groups, {name: hosts}, and with the `children` of tf_cluster; [] for none.

    `program` is True if the user has a program, which needs no ps, and may have a chief and an evaluator.
    Without the group tf_cluster, this is the only problem.
    """
    if PARENT not in groups:
        what = f"there is no group {PARENT}{_similar_group(PARENT, groups)}"
        return [InventoryProblem(f"{what}; expected {PARENT} with the child groups ps and worker")]
    problems = [
        *(problem for job in JOBS for problem in _job_problems(job, groups, children, program)),
        *_stray_groups(children),
        *_host_problems(groups, children),
    ]
    return [InventoryProblem(problem) for problem in problems]


def _similar_group(name: str, groups: Groups) -> str:
    close = get_close_matches(name, sorted(groups), n=1)
    return f" (there is {close[0]!r})" if close else ""


def _job_problems(job: Job, groups: Groups, children: Sequence[str], program: bool) -> Iterator[str]:
    hosts = groups.get(job, ())
    required = job == "worker" or (job == "ps" and not program)
    if hosts and job not in children:
        yield f"the group {job} is not below {PARENT}; expected it among {PARENT}'s children"
    if required and job in groups and not hosts:
        yield f"the group {job} is empty; expected one host or more in it"
    if required and job not in groups and job not in map(_meant_job, children):  # _stray_groups reports it
        expected = f"expected a child group {job} of {PARENT} with one host or more"
        yield f"there is no group {job}{_similar_group(job, groups)}; {expected}"
    if job == "chief" and hosts and not program:
        what = f"the group chief holds {named(hosts)}, and trainer_program is empty"
        yield f"{what}; expected no such group: worker0 is the chief of the trainer's own models"
    elif job == EVALUATOR and hosts and not program:
        what = f"the group {job} holds {named(hosts)}, and trainer_program is empty"
        yield f"{what}; expected no such group: psfleet itself evaluates the trainer's own models"
    elif job in SINGLE_JOBS and len(hosts) > 1:
        yield f"the group {job} holds {len(hosts)} hosts, {named(hosts)}; expected one"
    elif job == EVALUATOR and hosts and not groups.get("chief"):
        what = f"the group {job} holds {named(hosts)}, and there is no chief"
        yield f"{what}; expected a host in the group chief, whose checkpoints the evaluator evaluates"


def _meant_job(group: str) -> str:
    """Return the job of JOBS, such as "ps", that a group name resembles; "" if it resembles none."""
    return next(iter(get_close_matches(group, JOBS, n=1)), "")


def _stray_groups(children: Sequence[str]) -> Iterator[str]:
    for group in children:
        if group not in JOBS:
            meant = _meant_job(group)
            advice = f"did you mean {meant}?" if meant else f"expected groups of another kind beside {PARENT}"
            yield f"the group {group} below {PARENT} is neither ps nor worker; {advice}"


def _host_problems(groups: Groups, children: Sequence[str]) -> Iterator[str]:
    placed = {host for group in (*children, *JOBS) for host in groups.get(group, ())}
    if stray := [host for host in groups[PARENT] if host not in placed]:
        yield f"neither ps nor worker holds {named(stray)} of {PARENT}; expected each host in one or both"
    if odd := [repr(host) for host in groups[PARENT] if not is_host_name(host)]:
        expected = (
            "letters, digits, '.', '_' and '-', at most 253 and a letter or digit last, or an IPv6 address"
        )
        yield f"no host can have the name {named(odd)}; expected {expected}"
    # Ansible applies variables of such a host to the group, too.
    if alike := [host for host in groups[PARENT] if host in groups]:
        what = f"{named(alike)} is the name of a host and of a group; expected another name for the host"
        # [tf_cluster] in an INI file lists hosts.
        groups_below = f", or in an INI file the groups below [{PARENT}:children]"
        yield f"{what}{groups_below if {*alike} & {*JOBS} else ''}"
    # SSH compares host names in lower case, in certificates and known hosts: one would pass for the other.
    for hosts in grouped((host.lower(), host) for host in groups[PARENT]).values():
        if len(hosts) > 1:
            what = f"the hosts {named(hosts)} differ in capitals alone"
            yield f"{what}; expected names that differ otherwise, too"
