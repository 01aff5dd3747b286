"""The chain of checks of a host whose tasks have GPUs: each link that breaks, and what to do about it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.trainer.host.made_gpu_hosts import KERNEL, UUID, recorded
from trainer.host.check import Check
from trainer.host.gpu_checks import gpu_chain
from trainer.host.nvidia import Gpu, GpuFacts

H200 = Gpu(0, "NVIDIA H200", UUID, 143771, (9, 0), "580.173.02")
GOOD = GpuFacts(
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
BARE = GpuFacts(
    bus=("0000:83:00.0",),
    bus_drivers=("",),
    smi="nvidia-smi is not installed",
    secure_boot=False,
    kernel=KERNEL,
)


def worker(*gpus: int, index: int = 0) -> dict[str, Any]:
    return {"job": "worker", "index": index, "host": "node3", "gpus": list(gpus)}


def checks(facts: GpuFacts, *tasks: dict[str, Any], machine: str = "x86_64") -> dict[str, Check]:
    chain = gpu_chain(facts, tasks or (worker(0),), machine)
    assert [check.name for check in chain] == ["bus", "driver", "nvidia-smi", "uvm", "gpus"]
    for check in chain:
        assert bool(check.remedy) == (check.state in {"warning", "failed"}), check
        assert check.found
        assert "\n" not in check.found + check.remedy
    return {check.name: check for check in chain}


def broken(facts: GpuFacts, *tasks: dict[str, Any], machine: str = "x86_64") -> Check:
    """Return the one check that failed; those before it are well, those after it were not looked at."""
    found = list(checks(facts, *tasks, machine=machine).values())
    states = [check.state for check in found]
    at = states.index("failed")
    assert set(states[:at]) <= {"ok", "warning"}
    assert set(states[at + 1 :]) <= {"skipped"}
    return found[at]


def test_a_host_whose_tasks_have_no_gpus_is_not_asked() -> None:
    assert (
        gpu_chain(BARE, [worker(), {"job": "ps", "index": 0, "host": "node3", "gpus": []}], "aarch64") == []
    )


def test_a_host_with_all_that_its_tasks_need_is_well() -> None:
    found = checks(GOOD, worker(0), worker(1, index=1))
    assert {check.state for check in found.values()} == {"ok"}
    assert found["gpus"].found == "worker0 has GPU 0, worker1 has GPU 1"
    assert found["nvidia-smi"].found == "0 NVIDIA H200, 1 NVIDIA H200"


def test_no_device_on_the_bus() -> None:
    check = broken(GpuFacts(), worker(0, 1))
    assert check.name == "bus"
    assert check.found == "no NVIDIA device on the PCI bus, worker0 has GPU 0,1"
    assert "trainer_worker_gpus" in check.remedy
    assert "host_vars/node3.yml" in check.remedy


def test_gpus_that_nvidia_smi_lists_are_there_whatever_the_kernel_shows_of_them() -> None:
    hidden = replace(GOOD, bus=(), bus_drivers=(), driver="")
    found = checks(hidden)
    assert {check.state for check in found.values()} == {"ok"}
    assert "nvidia-smi lists 2" in found["bus"].found
    assert found["driver"].found == "580.173.02"
    assert checks(replace(hidden, gpus=(replace(H200, driver="[N/A]"),)))["driver"].state == "failed"


def test_no_wheel_for_gpus_of_another_processor() -> None:
    check = broken(GOOD, machine="aarch64")
    assert check.name == "bus"
    assert "aarch64" in check.found
    assert "x86_64 alone" in check.found
    assert "trainer_worker_gpus" in check.remedy


@pytest.mark.parametrize(
    ("changes", "found", "remedy"),
    [
        ({}, "NVIDIA's driver is not installed", "nvidia_cuda_driver to present (host_vars/node3.yml"),
        ({"bus_drivers": ("nouveau",)}, "nouveau drives the device", "nvidia_cuda_driver to present"),
        ({"bus_drivers": ("vfio-pci",)}, "vfio-pci holds the device", "virtual machine"),
        (
            {"module_kernels": ("6.1.0-9-amd64",)},
            f"built for the kernels 6.1.0-9-amd64, and {KERNEL} runs",
            f"apt-get install linux-headers-{KERNEL}` and `dkms autoinstall",
        ),
        ({"module_kernels": (KERNEL,), "bus_drivers": ("nouveau",)}, "nouveau holds the device", "reboot"),
        ({"module_kernels": (KERNEL,), "secure_boot": True}, "Secure Boot is on", "mokutil --import"),
        ({"module_kernels": (KERNEL,)}, "not loaded", "`modprobe nvidia` says why"),
    ],
)
def test_why_the_driver_is_not_loaded(changes: dict[str, Any], found: str, remedy: str) -> None:
    check = broken(replace(BARE, **changes))
    assert check.name == "driver"
    assert found in check.found
    assert remedy in check.remedy


@pytest.mark.parametrize(
    ("driver", "state"),
    [
        ("470.256.02", "failed"),
        ("524.99", "failed"),
        ("525.60.11", "warning"),
        ("550.163.01", "warning"),
        ("554.1", "warning"),
        ("555.42", "ok"),
        ("610.43.02", "ok"),
    ],
)
def test_a_driver_has_to_be_new_enough(driver: str, state: str) -> None:
    check = checks(replace(GOOD, driver=driver))["driver"]
    assert check.state == state
    assert driver in check.found
    assert ("jit_compile" in check.found) == (state == "warning")
    assert ("525" in check.found) == (state == "failed" or driver.startswith("525"))
    assert ("nvidia_cuda_driver to present" in check.remedy) == (state == "failed")


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (recorded("smi-error-no-driver.txt"), "modprobe nvidia"),
        (recorded("smi-error-550-mismatch.txt"), "reboot"),
        (recorded("smi-error-no-devices.txt"), "dmesg"),
        (recorded("smi-error-lost.txt"), "Xid"),
        (recorded("smi-error-560-unknown-error.txt"), "Xid"),
        ("nvidia-smi is not installed", "nvidia-utils"),
        ("nvidia-smi did not answer within 60 s", "the driver hangs"),
        ("0, [GPU requires reset]", "--gpu-reset"),
        ("something new", "as root on the host"),
    ],
)
def test_what_helps_where_nvidia_smi_does_not_answer(said: str, remedy: str) -> None:
    words = said.strip().replace("\n", "; ")
    check = broken(replace(GOOD, smi=words, gpus=()))
    assert (check.name, check.found) == ("nvidia-smi", words)
    assert remedy in check.remedy


def test_the_node_of_unified_memory_is_made_later_where_that_can_be() -> None:
    without = replace(GOOD, nodes=("/dev/nvidia0", "/dev/nvidiactl"))
    found = checks(without)
    assert (found["uvm"].state, found["gpus"].state) == ("ok", "ok")
    assert "psfleet-gpu-devices.service makes /dev/nvidia-uvm" in found["uvm"].found
    check = broken(replace(without, nvidia_modprobe=False))
    assert check.name == "uvm"
    assert "nvidia-modprobe -u -c 0" in check.remedy
    assert "install the package nvidia-modprobe" in check.remedy


def test_a_gpu_that_the_host_lacks() -> None:
    check = broken(GOOD, worker(0), worker(4, 1, index=1))
    assert check.name == "gpus"
    assert check.found == "worker1 has GPU 4, and node3 has the GPUs 0, 1"
    assert "trainer_worker_gpus" in check.remedy
    assert broken(replace(GOOD, gpus=(H200,)), worker(1)).found == "worker0 has GPU 1, and node3 has GPU 0"


@pytest.mark.parametrize(
    ("capability", "state"),
    [
        ((5, 2), "failed"),
        ((6, 0), "ok"),
        ((9, 0), "ok"),
        ((10, 0), "failed"),
        ((12, 0), "failed"),
        (None, "warning"),
    ],
)
def test_a_gpu_is_one_that_the_wheel_is_built_for(capability: tuple[int, int] | None, state: str) -> None:
    check = checks(replace(GOOD, gpus=(replace(H200, compute_capability=capability),)))["gpus"]
    assert check.state == state
    if capability and state == "failed":
        assert (
            f"GPU 0 of worker0, NVIDIA H200, has compute capability {capability[0]}.{capability[1]}"
            in check.found
        )
        assert "6.0 to below 10.0" in check.found
        assert "trainer_worker_gpus" in check.remedy
    assert ("Blackwell" in check.found) == bool(capability and capability >= (10, 0))


@pytest.mark.parametrize(("state", "waits"), [("In Progress", True), ("Completed", False), ("", False)])
def test_gpus_of_a_fabric_wait_for_its_manager(state: str, waits: bool) -> None:
    check = checks(replace(GOOD, gpus=(replace(H200, fabric=state),)))["gpus"]
    assert check.state == ("warning" if waits else "ok")
    assert ("nvidia-fabricmanager" in check.remedy) == waits


def test_a_gpu_in_pieces_is_refused() -> None:
    check = broken(replace(GOOD, gpus=(replace(H200, mig=True),)))
    assert "MIG" in check.found
    assert "nvidia-smi -i 0 -mig 0" in check.remedy


def test_all_that_is_wrong_with_gpus_is_said_at_once_and_only_of_those_that_are_used() -> None:
    gpus = (
        replace(H200, mig=True),
        replace(H200, index=1, compute_capability=(12, 0)),
        replace(H200, index=2, mig=True),
    )
    check = broken(replace(GOOD, gpus=gpus), worker(0), worker(1, 7, index=1))
    assert [part in check.found for part in ("MIG", "12.0", "GPU 7")] == [True] * 3
    assert "GPU 2" not in check.found
