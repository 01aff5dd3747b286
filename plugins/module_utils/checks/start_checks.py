"""Checks for what would keep a host's tasks from starting, or their metrics from being written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..host.check import Check
from ..host.memory import parse_memory, read_memory_limit
from ..host.whole_files import text_of
from ..tasks.metrics_timer import MEND_DIRECTORY, directory_problem
from .host_checks import data_finding, memory_finding
from .port_checks import ports_finding, read_port_facts, running_units, task_ports


def failed_checks(parameters: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return those of the checks `metrics`, `ports`, `data` and `memory` that failed, as JSON objects.

    `parameters` are the arguments of the module `trainer_tasks`. Without tasks in its `starting`, only
    `metrics` is checked; without `tables`, `memory` is not checked.
    """
    checks = [*_metrics_checks(parameters["metrics_directory"])]
    if parameters["starting"]:
        checks += _start_checks(parameters)
    return [check.to_json() for check in checks if check.state == "failed"]


def _metrics_checks(directory: str) -> Iterator[Check]:
    if problem := directory_problem(directory):
        yield Check("metrics", "failed", problem, MEND_DIRECTORY)


def _start_checks(parameters: Mapping[str, Any]) -> Iterator[Check]:
    ports = task_ports(parameters["starting"])
    facts, running = read_port_facts([port.port for port in ports]), running_units(ports)
    for port in ports:
        yield Check("ports", *ports_finding([port], facts, running), task=port.name)
    yield Check("data", *data_finding(parameters["data_directories"], carried=parameters["data_carried"]))
    # deploy.yml and doctor.yml check what any model needs.
    if tables := parameters["tables"]:
        memory, limit = parse_memory(text_of(Path("/proc/meminfo"))), read_memory_limit(Path("/"))
        yield Check("memory", *memory_finding(memory, limit, len(parameters["starting"]), tables))
