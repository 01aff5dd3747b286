"""The checks whether a host can be part of a cluster, from `host_facts`, and the environment that it gets.

No check depends on an earlier check, so all problems are found at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..environments.environment import (
    MACHINES,
    SUPPORTED_PYTHONS,
    TENSORFLOW_RELEASES,
    HostEnvironment,
    problems,
)
from ..facts.host_facts import HostFacts, Interpreter
from ..host.check import Check, Finding, checks_of, failed, merge_findings, ok, skipped, warning
from ..host.wording import counted, dotted
from ..systems import Systems

PLATFORMS = "docs/platforms.md"
# The doctor's unit writes its answer with StandardOutput=truncate:, which older versions lack.
OLDEST_SYSTEMD = 248
# The wheels are manylinux_2_27.
OLDEST_GLIBC = (2, 27)
GIB = 2**30
# A task needs a quarter of a GiB before it reads any data. TensorFlow's code needs as much again, but only
# once for all tasks of a host.
FEWEST_BYTES_OF_TASK = GIB // 4
BYTES_OF_CODE = GIB // 4
BYTES_OF_TASK = GIB // 2


@dataclass(frozen=True)
class HostNeeds:
    """What the inventory needs of a host.

    - `python_version`: package_store_python_version, "" for the host's own Python.
    - `gpus`: whether any of its tasks has GPUs. `cuda_source`: nvidia_cuda_source.
    - `tasks`: the number of the host's tasks in the plan.
    - `fence`: port_fence_enabled. `mesh`: whether trainer_encryption is wireguard.
    - `tables`: the `bytes` of a model's tables that its tasks will hold, `what` they are for, and the
      `remedy` for too many; {} if unknown.
    - `programs`: for each requirements.txt of a program, its `key`, the `variable` that names it, the version
      `tensorflow` that it takes, and the `pythons` for which that has wheels.
    """

    python_version: str = ""
    gpus: bool = False
    cuda_source: str = "wheels"
    tasks: int = 1
    fence: bool = True
    mesh: bool = False
    tables: Mapping[str, Any] = field(default_factory=dict)
    programs: Sequence[Mapping[str, Any]] = ()

    @property
    def device(self) -> str:
        """The device of the host's environment: "cpu" without GPUs, else "gpu", or "gpu-system".

        It is "gpu-system" if `cuda_source` is "system".
        """
        return "cpu" if not self.gpus else "gpu-system" if self.cuda_source == "system" else "gpu"


def host_checks(facts: HostFacts, needs: HostNeeds, systems: Systems) -> list[Check]:
    """Return the checks `system`, `processor`, `libc`, `python` and `memory` of a host, in this order.

    None depends on an earlier one, so all problems are found at once.
    """
    return checks_of(
        {
            "system": _system(facts, needs, systems),
            "processor": _processor(facts, needs.device),
            "libc": _libc(facts, systems),
            "python": _pythons(facts, needs, systems),
            "memory": memory_finding(facts.memory_bytes, facts.memory_limit_bytes, needs.tasks, needs.tables),
        }
    )


def data_finding(directories: Sequence[str], *, carried: bool = False) -> Finding:
    """Return the finding of the check `data`: failed if a folder is missing or empty, else ok.

    `directories` are the folders that tasks read; without any, the check is skipped. `carried` says whether
    deploy.yml brings the data to the host; it only changes the words and the remedy of a failure.
    """
    if not directories:
        return skipped("its tasks read no data of their own, or deploy.yml brings them")
    for directory in directories:
        there = Path(directory).is_dir()
        if there and not _is_empty(Path(directory)):
            continue
        if carried:
            what = (
                f"there is {'nothing in' if there else 'no'} {directory}, where deploy.yml brings the data of"
            )
            return failed(f"{what} trainer_data_source", "run ansible-playbook deploy.yml")
        remedy = "put the data there, mount them, or have deploy.yml bring them: trainer_data_source"
        what = "an empty folder" if there else "no folder"
        return failed(f"trainer_data_dir is {directory}, which is {what} here", remedy)
    return ok(", ".join(directories))


def _is_empty(folder: Path) -> bool:
    """Return whether a folder exists and is empty; False if it cannot be read, as by root over NFS."""
    try:
        return not any(folder.iterdir())
    except OSError:
        return False


def host_environment(facts: HostFacts, needs: HostNeeds) -> tuple[HostEnvironment, Interpreter]:
    """Return (environment that a host gets, Python of the host from which the environment is made).

    Raises ValueError if no Python of the host fits, or if TensorFlow has no wheel for its processor.
    """
    python = choose_python(facts, needs.python_version)
    if python is None:
        raise ValueError(_python(facts, needs.python_version, Systems({})).found)
    return HostEnvironment(needs.device, python.version, facts.machine), python


def program_environment(facts: HostFacts, needs: HostNeeds, program: Mapping[str, Any]) -> HostEnvironment:
    """Return the environment of a program, an element of `needs.programs`.

    The host's environment for psfleet has a Python. If the program's TensorFlow has wheels for this Python,
    the program gets it too; else the newest Python of the host with such wheels. Raises ValueError if the
    host has no such Python, or if there are no wheels for the device; the check `python` says why.
    """
    own, _ = host_environment(facts, needs)
    there = {python.version for python in facts.pythons}
    fitting = [version for version in program["pythons"] if version in there]
    if not fitting:
        raise ValueError(_python_of_program(facts, needs, program).found)
    python = own.python if own.python in fitting else fitting[-1]
    return HostEnvironment(needs.device, python, facts.machine, program["tensorflow"])


def choose_python(facts: HostFacts, wanted: str) -> Interpreter | None:
    """Return the Python from which a host's environment is made; None if no Python of the host fits.

    - If `wanted` is not "", it must have this version, such as "3.11".
    - Else it is the host's python3 if TensorFlow has a wheel for it, else the newest one on the host for
      which TensorFlow has a wheel.
    """
    fitting = {
        python.version: python for python in facts.pythons if not problems("cpu", python.version, MACHINES[0])
    }
    if wanted:
        return fitting.get(wanted)
    if facts.default_python in fitting:
        return fitting[facts.default_python]
    return next((fitting[version] for version in reversed(SUPPORTED_PYTHONS) if version in fitting), None)


def _system(facts: HostFacts, needs: HostNeeds, systems: Systems) -> Finding:
    """Return the finding of the check `system`.

    It is failed for an unsupported distribution, without systemd OLDEST_SYSTEMD or newer, or if programs are
    missing; else it is the finding of `_distribution`.
    """
    distribution = _distribution(facts, systems)
    failures = [distribution] if distribution.state == "failed" else []
    if facts.systemd is None or not facts.booted:
        remedy = "boot the host with systemd, which starts the tasks"
        failures.append(failed("it was not booted with systemd", remedy))
    elif facts.systemd < OLDEST_SYSTEMD:
        remedy = f"the units need systemd {OLDEST_SYSTEMD} or newer: upgrade the system"
        failures.append(failed(f"its systemd is {facts.systemd}", remedy))
    lacking = [program for program in facts.missing_programs if needs.fence or program != "nft"]
    lacking += facts.missing_for_mesh if needs.mesh else ()
    if lacking:
        failures.append(failed(f"it lacks {', '.join(lacking)}", _how_to_install(facts, lacking, systems)))
    return merge_findings(failures) if failures else distribution


def _distribution(facts: HostFacts, systems: Systems) -> Finding:
    """Return the finding about a host's distribution.

    It is failed for an unsupported one, a warning for one that is only like a supported one, else ok, with a
    note if psfleet was not tested on it.
    """
    distribution = facts.distribution
    system, name = systems.of(distribution), distribution.name
    if system is None:
        remedy = f"use {systems.supported}; {PLATFORMS} says what another system takes"
        return failed(f"{name} is not supported", remedy)
    if not system.is_release(distribution):
        return warning(
            f"{name} is akin to the systems that psfleet knows, but none of them",
            f"supported are {systems.supported} ({PLATFORMS}); psfleet was not tested on this one",
        )
    return ok(name if system.is_tested(distribution) else f"{name} (supported, but not tested)")


def _how_to_install(facts: HostFacts, lacking: Sequence[str], systems: Systems) -> str:
    system = systems.of(facts.distribution)
    if system is None:
        return "install them there"
    packages = sorted({system.programs[program] for program in lacking})
    return f"on the host: sudo {system.packages.install} {' '.join(packages)}"


def _processor(facts: HostFacts, device: str) -> Finding:
    """Return the finding of the check `processor`: whether TensorFlow has machine code for it.

    It is failed without a wheel for the processor and `device`, or without AVX; a warning on aarch64, or if
    AVX is unknown; else ok.
    """
    found = facts.processor or facts.machine
    missing = problems(device, SUPPORTED_PYTHONS[0], facts.machine)
    if missing:
        remedy = "use a host with an x86_64 processor"
        if facts.machine in MACHINES:
            remedy = f"take the GPUs from this host's tasks (trainer_worker_gpus), or {remedy}"
        return failed("; ".join(missing), remedy)
    if facts.machine != MACHINES[0]:
        return warning(
            f"{facts.machine}, on which psfleet was never run",
            f"TensorFlow has a wheel for its CPU; the rest was not tested ({PLATFORMS})",
        )
    if facts.avx is None:
        return warning(
            f"{found}; /proc/cpuinfo does not say whether it has AVX",
            "look for avx in `lscpu`: without it TensorFlow dies with an illegal instruction (SIGILL)",
        )
    if not facts.avx:
        return failed(
            f"{found} has no AVX, without which TensorFlow dies with an illegal instruction (SIGILL)",
            "use another host; a virtual machine may hide AVX: give it the host's processor model (cpu host)",
        )
    return ok(found)


def _libc(facts: HostFacts, systems: Systems) -> Finding:
    """Return the finding of the check `libc`: failed unless the host has glibc OLDEST_GLIBC or newer."""
    oldest = dotted(OLDEST_GLIBC)
    if facts.libc != "glibc":
        found = f"its C library is {facts.libc or 'not known'}"
        return failed(found, f"use a system with glibc {oldest} or newer, such as {systems.supported}")
    found = f"glibc {dotted(facts.libc_version)}"
    if facts.libc_version < OLDEST_GLIBC:
        return failed(found, f"TensorFlow's wheel needs {oldest} or newer: upgrade the system")
    return ok(found)


def _python(facts: HostFacts, wanted: str, systems: Systems) -> Finding:
    """Return the finding of the check `python`: ok with the version and path that `choose_python` returns.

    If it returns None, the finding is failed, and names all versions that the host has.
    """
    chosen = choose_python(facts, wanted)
    if chosen is not None:
        return ok(f"Python {chosen.version} ({chosen.path})")
    there = ", ".join(f"Python {python.version}" for python in facts.pythons) or "no Python 3"
    found = f"it has {there}"
    if wanted:
        missing = problems("cpu", wanted, MACHINES[0])
        remedy = "; ".join(missing) or (
            f"install python{wanted} there, or leave package_store_python_version empty for the host's own"
        )
        return failed(f"package_store_python_version is {wanted}; {found}", remedy)
    missing = problems("cpu", facts.pythons[-1].version, MACHINES[0]) if facts.pythons else []
    span = f"{SUPPORTED_PYTHONS[0]} to {SUPPORTED_PYTHONS[-1]}"
    instead = f"install one of Python {span} beside it, or use {systems.supported}"
    remedy = "; ".join([*missing, instead])
    return failed(found, remedy)


def _pythons(facts: HostFacts, needs: HostNeeds, systems: Systems) -> Finding:
    """Return the finding about the Pythons of the trainer's environment and of the programs' environments."""
    own = _python(facts, needs.python_version, systems)
    programs = [_python_of_program(facts, needs, program) for program in needs.programs]
    failures = [finding for finding in (own, *programs) if finding.state == "failed"]
    return merge_findings(failures) if failures else own


def _python_of_program(facts: HostFacts, needs: HostNeeds, program: Mapping[str, Any]) -> Finding:
    """Return the finding whether there are wheels of a program's TensorFlow for the host."""
    pythons, version, there = (
        program["pythons"],
        program["tensorflow"],
        [each.version for each in facts.pythons],
    )
    takes = f"{program['variable']} takes TensorFlow {version}"
    if not set(pythons) & set(there):
        newer = [release for release, (_, of) in TENSORFLOW_RELEASES.items() if set(of) & set(there)]
        instead = f", or let the program take TensorFlow {newer[0]} or newer" if newer else ""
        return failed(
            f"{takes}, which has wheels for Python {' and '.join(pythons)} alone, and it has "
            f"{', '.join(f'Python {each}' for each in there) or 'no Python 3'}",
            f"install Python {' or '.join(pythons)} there, use hosts that have it{instead}",
        )
    missing = problems(needs.device, pythons[-1], facts.machine, version)
    return failed(takes, "; ".join(missing)) if missing else ok(takes)


def memory_finding(
    memory_bytes: int | None, limit_bytes: int | None, tasks: int, tables: Mapping[str, Any]
) -> Finding:
    """Return the finding of the check `memory`: whether `tasks` tasks fit into the host's memory.

    `memory_bytes` and `limit_bytes` are as in HostFacts, and the smaller one counts; `tables` is as in
    HostNeeds.

    - failed below 0.25 GiB for TensorFlow's code, and 0.25 GiB for each task, and the tables.
    - a warning below 0.5 GiB for each task, and the tables; also if the memory is unknown.
    """
    known = [size for size in (memory_bytes, limit_bytes) if size is not None]
    table_bytes = tables.get("bytes", 0)
    fewest = BYTES_OF_CODE + tasks * FEWEST_BYTES_OF_TASK + table_bytes
    usual = tasks * BYTES_OF_TASK + table_bytes
    for_tasks = f"for {counted(tasks, 'task')}"
    for_tasks += f", of these {_gib(table_bytes)} {tables['what']}," if table_bytes else ""
    if not known:
        remedy = f"see that there are {_gib(usual)} {for_tasks}"
        return warning("/proc/meminfo does not show the memory", remedy)
    there = _gib(min(known))
    if limit_bytes == min(known):
        there += " (the limit of its control group)"
    remedy = "put fewer tasks there (trainer_ps_tasks, trainer_worker_tasks), or give it more memory"
    remedy = tables.get("remedy", remedy)
    if min(known) < fewest:
        return failed(f"{there} of memory; {_gib(fewest)} {for_tasks} are needed", remedy)
    if min(known) < usual:
        found = f"{there} of memory, which is little: {_gib(usual)} {for_tasks} leave room to train"
        return warning(found, remedy)
    return ok(f"{there}; {_gib(table_bytes)} {tables['what']}" if table_bytes else there)


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
