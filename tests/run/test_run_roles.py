from trainer.plan import ClusterPlan, Task
from trainer.run_roles import described_tasks, lead_of

PLAN = ClusterPlan(
    "psfleet",
    (
        Task("ps", 0, "n1", "10.0.0.1", 2222),
        Task("worker", 0, "n1", "10.0.0.1", 2223),
        Task("worker", 1, "n2", "10.0.0.2", 2222),
    ),
)
WITH_CHIEF = ClusterPlan("psfleet", (*PLAN.tasks, Task("chief", 0, "n2", "10.0.0.2", 2223)))


def roles(plan: ClusterPlan = PLAN, *, program: bool = False, **training: object) -> dict[str, str]:
    return {task["name"]: task["role"] for task in described_tasks(plan, training, program=program)}


def addresses(*, program: bool = False, **training: object) -> dict[str, str]:
    return {task["name"]: task["address"] for task in described_tasks(PLAN, training, program=program)}


def test_workers_that_build_their_own_graph_are_clients() -> None:
    assert roles() == {"ps0": "ps", "worker0": "client", "worker1": "client"}


def test_workers_of_one_graph_serve_its_client() -> None:
    assert roles(replication="in_graph") == {"ps0": "ps", "worker0": "client", "worker1": "server"}


def test_a_server_of_its_own_starts_before_its_client() -> None:
    assert roles(existing_servers=True) == {
        "ps0": "ps",
        "worker0": "client",
        "worker1": "client",
        "server0": "server",
        "server1": "server",
    }


def test_a_program_without_a_chief_has_clients_alone() -> None:
    assert roles(program=True, replication="in_graph") == roles()


def test_the_workers_of_a_coordinator_serve_it() -> None:
    assert roles(WITH_CHIEF, program=True) == {
        "ps0": "ps",
        "worker0": "server",
        "worker1": "server",
        "chief0": "client",
    }


def test_the_chief_of_a_program_leads() -> None:
    assert lead_of(described_tasks(WITH_CHIEF, {}, program=True))["name"] == "chief0"
    assert lead_of(described_tasks(PLAN, {}, program=True))["name"] == "worker0"
    assert lead_of(described_tasks(PLAN, {"replication": "local"}, program=False))["host"] == "n1"


def test_a_server_listens_in_place_of_its_client() -> None:
    assert addresses(existing_servers=True)["server1"] == "10.0.0.2:2222"
    assert addresses(existing_servers=True)["worker1"] == ""
    assert addresses(existing_servers=True, replication="in_graph") == {
        "ps0": "10.0.0.1:2222",
        "worker0": "",
        "worker1": "10.0.0.2:2222",
        "server0": "10.0.0.1:2223",
    }


def test_one_process_alone_listens_nowhere() -> None:
    assert addresses(replication="local") == {"worker0": ""}
