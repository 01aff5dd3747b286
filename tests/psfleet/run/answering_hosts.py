"""What hosts of a small cluster answer to train.yml, deploy.yml and stop.yml."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from plugins.module_utils.environments.environment import TENSORFLOW_VERSION

PLAN: dict[str, Any] = {
    "hash": "aaa",
    "tasks": [
        {"job": "ps", "index": 0, "host": "n1", "address": "10.0.0.1", "port": 2222, "gpus": []},
        {"job": "worker", "index": 0, "host": "n2", "address": "10.0.0.2", "port": 2222, "gpus": []},
    ],
}

TASKS: list[dict[str, Any]] = [
    {"name": "ps0", "job": "ps", "index": 0, "host": "n1", "role": "ps"},
    {"name": "worker0", "job": "worker", "index": 0, "host": "n2", "role": "client"},
]


def found(
    name: str,
    *,
    alive: bool = False,
    run_id: str = "",
    deployed: dict[str, Any] | None = None,
    phase: str = "",
    tensorflow: str = TENSORFLOW_VERSION,
    lacks_cuda: bool = True,
    unfenced: str = "",
    environment: str = "1" * 12,
    programs: Sequence[str] = (),
    program_environments: Mapping[str, str] = MappingProxyType({}),
    holds_run: bool = False,
    begun: str = "",
    deployed_by: str = "",
    checks: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    task = {"name": name, "job": name[:-1], "index": int(name[-1])}
    task |= {"alive": alive, "run_id": run_id, "begun": begun, "phase": phase}
    return {
        "deployed_by": deployed_by,
        "deployed": PLAN if deployed is None else deployed,
        "release": "0" * 12,
        "environment": environment,
        "programs": list(programs),
        "program_environments": program_environments,
        "holds_run": holds_run,
        "tensorflow": tensorflow,
        "lacks_cuda": lacks_cuda,
        "unfenced": unfenced,
        "checks": list(checks),
        "tasks": [task],
    }
