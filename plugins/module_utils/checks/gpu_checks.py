"""The host checks of GPUs, in order: from the PCI bus to the GPUs of each task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..facts.nvidia import Gpu, GpuFacts
from ..host.check import Check, Finding, checks_of, failed, merge_findings, ok, skipped, warning
from ..host.gpu_support import FIRST_UNSUPPORTED_CAPABILITY, JIT_DRIVER, OLDEST_CAPABILITY, OLDEST_DRIVER
from ..host.wording import dotted
from ..systems.system import System

GPU_MACHINE = "x86_64"
UVM_NODE = "/dev/nvidia-uvm"

if TYPE_CHECKING:  # Python 3.8 accepts this type only in annotations
    Task = Mapping[str, Any]


def gpu_checks(facts: GpuFacts, tasks: Sequence[Task], machine: str, system: System | None) -> list[Check]:
    """Return the checks `bus`, `driver`, `nvidia-smi`, `uvm` and `gpus`, in order; [] if no task has GPUs.

    After a failed check, all later ones are skipped. `tasks` are the host's tasks in the plan (with job,
    index, host, gpus), `machine` is the processor as `uname -m` prints it, and `system` has the names of the
    host's packages, None if they are unknown.
    """
    tasks = [task for task in tasks if task["gpus"]]
    if not tasks:
        return []
    questions: dict[str, Callable[[], Finding]] = {
        "bus": lambda: _bus(facts, tasks, machine),
        "driver": lambda: _driver(facts, tasks[0]["host"], system),
        "nvidia-smi": lambda: _smi(facts, system),
        "uvm": lambda: _uvm(facts),
        "gpus": lambda: _gpus(facts, tasks),
    }
    findings: dict[str, Finding] = {}
    broken = ""
    for name, finding in questions.items():
        findings[name] = skipped(f"not checked: {broken} failed") if broken else finding()
        broken = name if findings[name].state == "failed" else broken
    return checks_of(findings)


def _bus(facts: GpuFacts, tasks: Sequence[Task], machine: str) -> Finding:
    if machine != GPU_MACHINE:
        return failed(
            f"the processor is {machine}, {_gpus_of_tasks(tasks)}; TensorFlow's wheels know GPUs on "
            f"{GPU_MACHINE} alone",
            _give_no_gpus(tasks),
        )
    if not facts.bus and facts.gpus:
        # A container may have GPUs without /sys/bus/pci.
        return ok(f"the PCI bus shows none, and nvidia-smi lists {len(facts.gpus)}")
    if not facts.bus:
        return failed(
            f"no NVIDIA device on the PCI bus, {_gpus_of_tasks(tasks)}",
            f"{_give_no_gpus(tasks)}. A card that is powered, seated and, for a virtual machine, passed "
            "through is shown by `lspci -d 10de:`",
        )
    return ok(f"{len(facts.bus)} at {', '.join(facts.bus)}")


def _driver(facts: GpuFacts, host: str, system: System | None) -> Finding:
    install = (
        f"set nvidia_cuda_driver to present (host_vars/{host}.yml, or its group's), or install a driver, "
        f"{JIT_DRIVER} or newer, yourself; then deploy again"
    )
    # In a container there is no /proc/driver, and a newer driver may write it differently: ask nvidia-smi.
    versions = (gpu.driver for gpu in facts.gpus if gpu.driver[:1].isdigit())
    version = facts.driver or next(versions, "")
    if version:
        return _driver_version(version, install)
    others = sorted({name for name in facts.bus_drivers if name not in {"", "nvidia"}})
    if set(facts.bus_drivers) == {"vfio-pci"}:
        return failed(
            "the device is held by vfio-pci, which passes it on to a virtual machine",
            "put the virtual machine into the inventory in place of its host, or release the device",
        )
    if others and not facts.module_kernels:
        return failed(f"the device is driven by {' and '.join(others)}, not by NVIDIA's driver", install)
    if not facts.module_kernels:
        return failed("NVIDIA's driver is not installed", install)
    return failed(*_not_loaded(facts, others, system))


def _not_loaded(facts: GpuFacts, others: Sequence[str], system: System | None) -> tuple[str, str]:
    """Return (why the installed driver is not loaded, the remedy), both in words.

    `others` are the names of other drivers that hold the devices; `system` is None if it is unknown.
    """
    if facts.kernel not in facts.module_kernels:
        known = system.driver if system else None
        headers = f"`{system.packages.install} {known.headers}{facts.kernel}`" if system and known else ""
        return (
            f"the driver is built for the kernels {', '.join(facts.module_kernels)}, and {facts.kernel} runs",
            f"{headers or 'install its headers'} and `dkms autoinstall`; or boot one of those kernels",
        )
    if others:
        return (
            f"the device is held by {' and '.join(others)}, and NVIDIA's driver is installed beside it",
            "reboot: the packages of the driver keep nouveau from loading then "
            "(else write `blacklist nouveau` to /etc/modprobe.d/nouveau.conf, and `update-initramfs -u`)",
        )
    if facts.secure_boot:
        return (
            f"the driver is built for {facts.kernel} and not loaded; Secure Boot is on and refuses a module "
            "that is not signed by a key it knows",
            "`modprobe nvidia` says so (Key was rejected by service): enrol the key that signed it, as by "
            "`mokutil --import /var/lib/dkms/mok.pub`, and reboot with somebody at the console; or turn "
            "Secure Boot off in the firmware",
        )
    return (
        f"the driver is built for {facts.kernel} and not loaded",
        "`modprobe nvidia` says why; `dmesg | grep -i nvrm` has more",
    )


def _driver_version(version: str, install: str) -> Finding:
    major = int(version.partition(".")[0])
    if major < OLDEST_DRIVER:
        return failed(f"driver {version}; the CUDA 12 of TensorFlow needs {OLDEST_DRIVER} or newer", install)
    if major < JIT_DRIVER:
        return warning(
            f"driver {version}, older than {JIT_DRIVER}: what it must compile from PTX itself may "
            "fail, as in a program with jit_compile=True",
            f"install {JIT_DRIVER} or newer where programs use jit_compile=True",
        )
    return ok(version)


# (words that nvidia-smi prints, remedy)
_SMI_REMEDIES = (
    ("version mismatch", "the driver was upgraded and the old one is still loaded: reboot"),
    ("couldn't communicate", "`modprobe nvidia` says why; `dmesg | grep -i nvrm` has more"),
    ("GPU is lost", "reboot; a GPU that is lost again has a fault, or too little power: `dmesg | grep Xid`"),
    ("Unknown Error", "reboot; a GPU that fails again has a fault, or too little power: `dmesg | grep Xid`"),
    ("requires reset", "`nvidia-smi --gpu-reset` as root while nothing uses the GPU, or reboot"),
    (
        "No devices",
        "`dmesg | grep -i nvrm` says why the driver accepts none; a newer driver knows newer GPUs",
    ),
    ("did not answer", "the driver hangs: `dmesg | grep Xid` says what happened; reboot"),
)


def _smi(facts: GpuFacts, system: System | None) -> Finding:
    if not facts.smi:
        return ok(", ".join(f"{gpu.index} {gpu.name}" for gpu in facts.gpus))
    if "not installed" in facts.smi:
        known = system.driver if system else None
        return failed(facts.smi, f"install it: the package {known.smi}" if known else "install it")
    otherwise = "`nvidia-smi` as root on the host, and `dmesg | grep -i nvrm`"
    return failed(facts.smi, next((cure for words, cure in _SMI_REMEDIES if words in facts.smi), otherwise))


def _uvm(facts: GpuFacts) -> Finding:
    if UVM_NODE in facts.nodes:
        return ok(UVM_NODE)
    if facts.nvidia_modprobe:
        # The node is missing after each boot of a machine without a desktop.
        return ok(f"psfleet-gpu-devices.service makes {UVM_NODE} before a task starts")
    return failed(
        f"{UVM_NODE} is not there, CUDA does not work without, and nvidia-modprobe, which makes it, is not "
        "installed",
        "install the package nvidia-modprobe; `nvidia-modprobe -u -c 0` as root says what else is wrong",
    )


def _gpus(facts: GpuFacts, tasks: Sequence[Task]) -> Finding:
    problems = list(_gpu_problems(facts, tasks))
    failures = [problem for problem in problems if problem.state == "failed"]
    return merge_findings(failures or problems) if problems else ok(_gpus_of_tasks(tasks))


def _gpu_problems(facts: GpuFacts, tasks: Sequence[Task]) -> Iterator[Finding]:
    """Yield a failed or warning finding for each thing that may keep TensorFlow from a GPU of a task."""
    there = {gpu.index: gpu for gpu in facts.gpus}
    for task in tasks:
        for index in task["gpus"]:
            gpu = there.get(index)
            if gpu is None:
                numbers = f"{'GPU' if len(there) == 1 else 'the GPUs'} {', '.join(map(str, sorted(there)))}"
                yield failed(
                    f"{_name(task)} has GPU {index}, and {task['host']} has {numbers}",
                    f"name GPUs that are there: {_where_to_edit(task)}",
                )
            else:
                yield from _problems_of(gpu, task)


def _problems_of(gpu: Gpu, task: Task) -> Iterator[Finding]:
    named = f"GPU {gpu.index} of {_name(task)}, {gpu.name},"
    if gpu.mig:
        yield failed(
            f"{named} is cut into MIG devices, which CUDA does not count as nvidia-smi counts GPUs",
            f"`nvidia-smi -i {gpu.index} -mig 0` as root makes it whole; or take it away: "
            f"{_where_to_edit(task)}",
        )
    if gpu.fabric in {"Not Started", "In Progress"}:
        yield warning(
            f"{named} waits for the fabric of NVSwitches ({gpu.fabric}), and CUDA for it (error 802)",
            "install nvidia-fabricmanager of the driver's own version, `systemctl enable --now "
            "nvidia-fabricmanager`",
        )
    capability = gpu.compute_capability
    if capability is None:
        yield warning(
            f"{named} does not tell its compute capability",
            "look it up: TensorFlow needs 6.0 to below 10.0",
        )
    elif not OLDEST_CAPABILITY <= capability < FIRST_UNSUPPORTED_CAPABILITY:
        found = (
            f"{named} has compute capability {dotted(capability)}; TensorFlow's wheel holds 6.0 to below 10.0"
        )
        remedy = f"train on its CPU: {_where_to_edit(task)}"
        if capability < OLDEST_CAPABILITY:
            yield failed(found, remedy)
        else:
            own = "it needs NVIDIA's container or a build of your own, which psfleet does not install"
            yield failed(f"{found}, without NVIDIA's Blackwell", f"{remedy}; {own}")


def _name(task: Task) -> str:
    return f"{task['job']}{task['index']}"


def _gpus_of_tasks(tasks: Sequence[Task]) -> str:
    """Return which task has which GPUs, such as "worker0 has GPU 0, worker1 has GPU 1"."""
    return ", ".join(f"{_name(task)} has GPU {','.join(str(gpu) for gpu in task['gpus'])}" for task in tasks)


def _where_to_edit(task: Task) -> str:
    """Return the variable and the file that give a task its GPUs, in words."""
    job, host = task["job"], task["host"]
    return f"trainer_{job}_gpus (or gpus in trainer_{job}_tasks) in host_vars/{host}.yml, or its group's"


def _give_no_gpus(tasks: Sequence[Task]) -> str:
    return f"give its tasks no GPUs: {' and '.join(dict.fromkeys(_where_to_edit(task) for task in tasks))}"
