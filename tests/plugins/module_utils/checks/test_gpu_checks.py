"""The chain of checks of a host with GPU tasks: each broken link, and its remedy."""

from dataclasses import replace
from typing import Any

from plugins.module_utils.checks.gpu_checks import gpu_checks
from plugins.module_utils.facts.nvidia import Gpu, GpuFacts
from plugins.module_utils.host.check import Check
from tests.plugins.module_utils.described import SYSTEMS
from tests.plugins.module_utils.made_gpu_hosts import KERNEL, recorded
from tests.plugins.module_utils.recorded_findings import cases, told

NAMES = ["bus", "driver", "nvidia-smi", "uvm", "gpus"]
H200 = Gpu(0, "NVIDIA H200", (9, 0), "580.173.02")
WELL = GpuFacts(
    bus=("0000:83:00.0", "0000:84:00.0"),
    bus_drivers=("nvidia", "nvidia"),
    driver="580.173.02",
    gpus=(H200, replace(H200, index=1)),
    nodes=("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"),
    secure_boot=False,
    kernel=KERNEL,
    module_kernels=(KERNEL,),
    nvidia_modprobe=True,
)
BARE = GpuFacts(("0000:83:00.0",), ("",), smi="nvidia-smi is not installed", secure_boot=False, kernel=KERNEL)
HOSTS = {"well": WELL, "bare": BARE, "empty": GpuFacts()}


def chain_of(case: dict[str, Any]) -> list[Check]:
    """Return the checks of a host with the facts of the case; by default worker0 has GPU 0."""
    facts = told(case.get("facts", {}))
    if "smi" in case:
        facts["smi"] = "; ".join(recorded(case["smi"]).strip().splitlines())
    if "gpus" in facts:
        facts["gpus"] = tuple(replace(H200, **gpu) for gpu in facts["gpus"])
    tasks = [
        {"job": name[:-1], "index": int(name[-1]), "host": "node3", "gpus": gpus}
        for name, gpus in case.get("tasks", {"worker0": [0]}).items()
    ]
    host = replace(HOSTS[case.get("host", "well")], **facts)
    system = SYSTEMS.get(case.get("system", "debian"))
    return gpu_checks(host, tasks, case.get("machine", "x86_64"), system)


@cases("gpus")
def test_the_first_broken_link_is_reported_with_its_remedy(case: dict[str, Any]) -> None:
    chain = chain_of(case)
    assert [check.name for check in chain] == NAMES
    name, state = case["check"].split()
    place = NAMES.index(name)
    check = chain[place]
    assert (check.state, check.found, check.remedy) == (state, case["found"], case.get("remedy", ""))
    assert {check.state for check in chain[:place]} <= {"ok"}
    after = {f"not checked: {check.name} failed"} if check.state == "failed" else set()
    assert {check.found for check in chain[place + 1 :] if check.state == "skipped"} <= after
    assert {check.state for check in chain[place + 1 :]} <= ({"skipped"} if after else {"ok"})


def test_a_host_without_gpu_tasks_is_not_checked() -> None:
    assert chain_of({"host": "bare", "machine": "aarch64", "tasks": {"worker0": [], "ps0": []}}) == []
