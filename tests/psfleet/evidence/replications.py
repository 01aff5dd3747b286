"""Real runs of each replication, and a way to change a count in one."""

from pathlib import Path

from tests.psfleet.evidence.run_folders import edit, records

STEPS = 300
SYNC, IN_GRAPH, ASYNC_ON_SERVERS, LOCAL = "sync", "in_graph", "async_on_servers", "local"
# Flags, ps and workers of each.
KINDS: dict[str, tuple[tuple[str, ...], int, int]] = {
    SYNC: (("--model=placement_demo", "--replication=sync", "--replicas_to_aggregate=2"), 2, 3),
    IN_GRAPH: (("--model=linear", "--replication=in_graph", "--existing_servers=true"), 1, 3),
    ASYNC_ON_SERVERS: (("--model=linear", "--existing_servers=true"), 1, 2),
    LOCAL: (("--model=linear", "--replication=local"), 1, 2),
}


def counted(run: Path) -> dict[str, int]:
    """What the chief counted of each worker."""
    contributions: dict[str, int] = records(run, "worker0")[-1]["contributions"]
    return contributions


def count(run: Path, /, **contributions: int) -> None:
    edit(run, "worker0", "finished", contributions=counted(run) | contributions)
