"""Whether a host can be part of a cluster: checks of what `host_facts` read, and the environment it gets.

No check hides another: none needs the one before it, so all that is wrong is said at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .check import Check, Finding, checks_of, failed, joined, ok, skipped, warning
from .environment import MACHINES, SUPPORTED_PYTHONS, HostEnvironment, problems
from .host_facts import HostFacts, Interpreter
from .systems import SUPPORTED, system_of
from .wording import counted, dotted

PLATFORMS = "docs/platforms.md"
# StandardOutput=truncate:, for the answer of the doctor's unit.
OLDEST_SYSTEMD = 248
# The wheels are manylinux_2_27.
OLDEST_GLIBC = (2, 27)
GIB = 2**30
# A task has a quarter of a GiB of its own before it has read any data. TensorFlow's code takes as much again,
# once on a host for all its tasks.
FEWEST_BYTES_OF_TASK = GIB // 4
BYTES_OF_CODE = GIB // 4
BYTES_OF_TASK = GIB // 2


@dataclass(frozen=True)
class Asked:
    """What the inventory asks of a host.

    `python_version` is package_store_python_version ("" for the host's own), `gpus` whether one of its tasks
    has GPUs, `cuda_source` nvidia_cuda_source, `tasks` how many tasks the plan has there, `fence` is
    port_fence_enabled, `mesh` whether trainer_encryption asks for WireGuard.
    """

    python_version: str = ""
    gpus: bool = False
    cuda_source: str = "wheels"
    tasks: int = 1
    fence: bool = True
    mesh: bool = False

    @property
    def device(self) -> str:
        """The device of the environment: "cpu", "gpu" or "gpu-system"."""
        return "cpu" if not self.gpus else "gpu-system" if self.cuda_source == "system" else "gpu"


def host_chain(facts: HostFacts, asked: Asked) -> list[Check]:
    """Return the checks `system`, `processor`, `libc`, `python` and `memory` of a host."""
    return checks_of(
        {
            "system": _system(facts, asked),
            "processor": _processor(facts, asked.device),
            "libc": _libc(facts),
            "python": _python(facts, asked.python_version),
            "memory": _memory(facts, asked.tasks),
        }
    )


def data_check(directory: str, *, carried: bool = False) -> Finding:
    """Return the check `data`: whether the folder is there that the tasks of the host are to read.

    `carried` says that deploy.yml has brought it.
    """
    if not directory:
        return skipped("its tasks read no data of their own, or deploy.yml brings them")
    if carried and not Path(directory).is_dir():
        what = f"there is no {directory}, where deploy.yml brings the data of trainer_data_source"
        return failed(what, "run ansible-playbook deploy.yml")
    if not Path(directory).is_dir():
        remedy = "put the data there, mount them, or have deploy.yml bring them: trainer_data_source"
        return failed(f"trainer_data_dir is {directory}, which is no folder here", remedy)
    return ok(directory)


def host_environment(facts: HostFacts, asked: Asked) -> tuple[HostEnvironment, Interpreter]:
    """Return the environment that a host gets, and the Python that it is made from.

    Raises ValueError where there is none; the checks `processor` and `python` say why.
    """
    python = choose_python(facts, asked.python_version)
    if python is None:
        raise ValueError(_python(facts, asked.python_version).found)
    return HostEnvironment(asked.device, python.version, facts.machine), python


def choose_python(facts: HostFacts, asked: str) -> Interpreter | None:
    """Return the Python that a host's environment is made from; None where none of the host's will do.

    That is the one asked for; else the host's own where TensorFlow has a wheel for it; else the newest.
    """
    fitting = {
        python.version: python for python in facts.pythons if not problems("cpu", python.version, MACHINES[0])
    }
    if asked:
        return fitting.get(asked)
    if facts.default_python in fitting:
        return fitting[facts.default_python]
    return next((fitting[version] for version in reversed(SUPPORTED_PYTHONS) if version in fitting), None)


def _system(facts: HostFacts, asked: Asked) -> Finding:
    """Say whether distribution, systemd and programs are there as roles and units need them."""
    distribution = _distribution(facts)
    failures = [distribution] if distribution.state == "failed" else []
    if facts.systemd is None or not facts.booted:
        remedy = "boot the host with systemd, which starts the tasks"
        failures.append(failed("it was not booted with systemd", remedy))
    elif facts.systemd < OLDEST_SYSTEMD:
        remedy = f"the units need systemd {OLDEST_SYSTEMD} or newer: upgrade the system"
        failures.append(failed(f"its systemd is {facts.systemd}", remedy))
    lacking = [program for program in facts.missing_programs if asked.fence or program != "nft"]
    lacking += facts.missing_for_mesh if asked.mesh else ()
    if lacking:
        failures.append(failed(f"it lacks {', '.join(lacking)}", _how_to_install(facts, lacking)))
    return joined(failures) if failures else distribution


def _distribution(facts: HostFacts) -> Finding:
    """Say what is known of a distribution: tested, the same code, akin, or none of ours."""
    found = facts.distribution
    system = system_of(found)
    if system is None:
        remedy = f"use {SUPPORTED}; what it takes to support another system, {PLATFORMS} says"
        return failed(f"{found.name} is not supported", remedy)
    if not system.is_release(found):
        return warning(
            f"{found.name} is akin to the systems that psfleet knows, but none of them",
            f"supported are {SUPPORTED} ({PLATFORMS}); whether it works here, nobody has tried",
        )
    return ok(found.name if system.is_tested(found) else f"{found.name} (supported, but not tested)")


def _how_to_install(facts: HostFacts, lacking: Sequence[str]) -> str:
    system = system_of(facts.distribution)
    if system is None:
        return "install them there"
    packages = sorted({system.programs[program] for program in lacking})
    return f"on the host: sudo {system.packages.install} {' '.join(packages)}"


def _processor(facts: HostFacts, device: str) -> Finding:
    """Say whether TensorFlow has machine code for the processor."""
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
            f"TensorFlow has a wheel for its CPU; whether the rest works, nobody has tried ({PLATFORMS})",
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


def _libc(facts: HostFacts) -> Finding:
    """Say whether the C library is one that the wheels are linked with."""
    oldest = dotted(OLDEST_GLIBC)
    if facts.libc != "glibc":
        found = f"its C library is {facts.libc or 'not known'}"
        return failed(found, f"use a system with glibc {oldest} or newer, such as {SUPPORTED}")
    found = f"glibc {dotted(facts.libc_version)}"
    if facts.libc_version < OLDEST_GLIBC:
        return failed(found, f"TensorFlow's wheel needs {oldest} or newer: upgrade the system")
    return ok(found)


def _python(facts: HostFacts, asked: str) -> Finding:
    """Say which Python the environment is made from, and what is there where none can be."""
    chosen = choose_python(facts, asked)
    if chosen is not None:
        return ok(f"Python {chosen.version} ({chosen.path})")
    there = ", ".join(f"Python {python.version}" for python in facts.pythons) or "no Python 3"
    found = f"it has {there}"
    if asked:
        missing = problems("cpu", asked, MACHINES[0])
        remedy = "; ".join(missing) or (
            f"install python{asked} there, or leave package_store_python_version empty for the host's own"
        )
        return failed(f"package_store_python_version is {asked}; {found}", remedy)
    missing = problems("cpu", facts.pythons[-1].version, MACHINES[0]) if facts.pythons else []
    span = f"{SUPPORTED_PYTHONS[0]} to {SUPPORTED_PYTHONS[-1]}"
    remedy = "; ".join([*missing, f"install one of Python {span} beside it, or use {SUPPORTED}"])
    return failed(found, remedy)


def _memory(facts: HostFacts, tasks: int) -> Finding:
    """Say whether the host's tasks fit into its memory, and have room there to train."""
    known = [size for size in (facts.memory_bytes, facts.memory_limit_bytes) if size is not None]
    fewest, usual = BYTES_OF_CODE + tasks * FEWEST_BYTES_OF_TASK, tasks * BYTES_OF_TASK
    for_tasks = f"for {counted(tasks, 'task')}"
    if not known:
        remedy = f"see that there are {_gib(usual)} {for_tasks}"
        return warning("/proc/meminfo says nothing of the memory", remedy)
    there = _gib(min(known))
    if facts.memory_limit_bytes == min(known):
        there += " (the limit of its control group)"
    remedy = "put fewer tasks there (trainer_ps_tasks, trainer_worker_tasks), or give it more memory"
    if min(known) < fewest:
        return failed(f"{there} of memory; {_gib(fewest)} {for_tasks} are needed", remedy)
    if min(known) < usual:
        found = f"{there} of memory, which is little: {_gib(usual)} {for_tasks} leave room to train"
        return warning(found, remedy)
    return ok(there)


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
