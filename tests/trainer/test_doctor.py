"""What TensorFlow can compute on in a task's environment; this machine's has no CUDA."""

import json
import os
import subprocess
import sys

import pytest

from tests.repository import ROOT
from trainer.doctor import NAMES, NO_GPU, EndedProcess, in_order, libraries_check, printed_checks, task_checks
from trainer.doctor_tensorflow import product_check, remedy_of
from trainer.host.check import Check
from trainer.process.gpu_libraries import LIBRARIES, OpenResult

OF_A_TASK = {**os.environ, "PYTHONPATH": str(ROOT)}
SEEN = Check("devices", "failed", "was given GPU 0 (CUDA_VISIBLE_DEVICES), and TensorFlow sees none", "look")
IMPORTED = Check("tensorflow", "ok", "TensorFlow 2.21.0")


def run_doctor(gpus: str) -> dict[str, Check]:
    command = [sys.executable, "-m", "trainer.doctor"]
    environment = {**OF_A_TASK, "CUDA_VISIBLE_DEVICES": gpus}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "InitializeLog" in ended.stderr
    (line,) = ended.stdout.splitlines()
    checks = [Check.from_json(check) for check in json.loads(line)["checks"]]
    assert [check.name for check in checks] == [*NAMES]
    return {check.name: check for check in checks}


def test_a_task_without_gpus_computes_on_the_cpu() -> None:
    checks = run_doctor("")
    assert [check.state for check in checks.values()] == ["ok", "skipped", "skipped", "ok"]
    assert checks["tensorflow"].found.startswith("TensorFlow 2.21.0, built without CUDA, Python 3.")
    assert checks["libraries"].found == checks["devices"].found == NO_GPU
    assert checks["product"].found.startswith("512 x 512 on CPU:0 equals NumPy's result, ")


def test_a_task_with_gpus_needs_the_tensorflow_with_cuda() -> None:
    checks = run_doctor("0")
    assert [check.state for check in checks.values()] == ["failed", "skipped", "skipped", "skipped"]
    assert "built without CUDA" in checks["tensorflow"].found
    assert checks["tensorflow"].remedy == "run deploy.yml, which installs the one with CUDA"
    assert {checks[name].found for name in NAMES[1:]} == {"tensorflow failed"}


def test_a_check_that_hangs_fails_and_the_later_ones_are_skipped() -> None:
    checks = task_checks({**OF_A_TASK, "CUDA_VISIBLE_DEVICES": ""}, seconds=0.2)
    assert [check.state for check in checks] == ["failed", "skipped", "skipped", "skipped"]
    assert checks[0].found == "TensorFlow did not answer within 0.2 s: it printed nothing"


def test_a_failed_check_of_libraries_ends_the_chain_and_a_warning_does_not() -> None:
    failed = Check("libraries", "failed", "libcusolver.so.11: cannot open", "run deploy.yml")
    assert [check.state for check in in_order([IMPORTED, failed])] == ["ok", "failed", "skipped", "skipped"]
    warned = Check("libraries", "warning", "libnccl.so.2: cannot open", "run deploy.yml")
    product = Check("product", "ok", "equals NumPy's result")
    devices = Check("devices", "ok", "GPU:0")
    assert in_order([product, warned, devices, IMPORTED]) == [IMPORTED, warned, devices, product]


def printed(*checks: Check) -> str:
    return "".join(json.dumps(check.to_json()) + "\n" for check in checks)


def test_errors_in_tensorflows_log_are_added_to_the_check_of_devices() -> None:
    # As TensorFlow 2.21 logs it on a machine without NVIDIA's driver.
    cu_init = "failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)"
    driver = "kernel driver does not appear to be running on this host (vm)"
    log = (
        "I0000 00:00:1795285259.964634   19012 dso_loader.cc:144] Could not load dynamic library\n"
        f"E0000 00:00:1795285259.964651   19012 cuda_platform.cc:52] {cu_init}\n"
        f"I0000 00:00:1795285259.964698   19012 cuda_diagnostics.cc:145] {driver}\n"
    )
    imported, devices = printed_checks(EndedProcess(printed(IMPORTED, SEEN), log))
    assert imported == IMPORTED
    assert devices.found == f"{SEEN.found}: {cu_init}; {driver}"
    assert devices.remedy == SEEN.remedy


@pytest.mark.parametrize(
    ("told", "how", "name", "remedy"),
    [
        ((), "was ended by SIGILL", "tensorflow", "AVX"),
        ((IMPORTED,), "was ended by SIGSEGV", "devices", "`nvidia-smi`"),
        ((IMPORTED, Check("devices", "ok", "GPU:0")), "was ended by SIGKILL", "product", "memory"),
        ((IMPORTED,), "did not answer within 120 s", "devices", "`nvidia-smi`"),
    ],
)
def test_the_check_in_which_tensorflow_died_fails_with_its_last_line(
    told: tuple[Check, ...], how: str, name: str, remedy: str
) -> None:
    checks = in_order(
        printed_checks(EndedProcess(printed(*told), "first\n\nI0000 00:00:1 2 a.cc:5] last words\n", how))
    )
    failed = next(check for check in checks if check.state == "failed")
    assert (failed.name, failed.found) == (name, f"TensorFlow {how}: last words")
    assert remedy in failed.remedy


def test_the_product_check_fails_on_a_missing_gpu() -> None:
    check = product_check(["0"])
    assert check.state == "failed"
    assert check.found.startswith("on GPU:0: ")


@pytest.mark.parametrize(
    ("problem", "remedy"),
    [
        # As people report them of GPUs that are too new: tensorflow#101746, #97387, #111958.
        (
            "TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0.",
            "compute capability",
        ),
        ("InternalError: 'cuModuleLoadData(...)' failed with 'CUDA_ERROR_INVALID_PTX'", "compute capability"),
        (
            "PTX version 8.5 does not support target 'sm_120', minimum required PTX version is 8.7",
            "compute capability",
        ),
        # A driver that is older than CUDA, whatever the GPU (EricLBuehler/mistral.rs#867).
        (
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the PTX was compiled with an unsupported toolchain.",
            "install 555 or newer",
        ),
        (
            "ResourceExhaustedError: failed to allocate memory: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
            "`nvidia-smi` on the host names it",
        ),
        ("InternalError: libdevice not found at ./libdevice.10.bc", "XLA_FLAGS"),
        (
            "No PTX compilation provider is available. Neither ptxas/nvlink nor nvjtlink is available.",
            "XLA_FLAGS",
        ),
        ("InternalError: CUDA_ERROR_ILLEGAL_ADDRESS", "Xid"),
    ],
)
def test_each_error_of_the_product_check_has_a_remedy(problem: str, remedy: str) -> None:
    assert remedy in remedy_of(problem)


@pytest.mark.parametrize(
    ("failing", "compiler", "state", "words"),
    [
        ((), "", "ok", f"all {len(LIBRARIES)} open"),
        (("libcuda.so.1", "libcublas.so.12"), "", "failed", "of the driver: libcuda.so.1: not there"),
        (("libcublas.so.12", "libnccl.so.2"), "", "failed", "libcublas.so.12: not there"),
        ((), "ptxas is not in PATH", "failed", "ptxas is not in PATH"),
        (("libnccl.so.2",), "", "warning", "libnccl.so.2: not there"),
    ],
)
def test_the_check_of_libraries_judges_which_of_them_do_not_open(
    failing: tuple[str, ...], compiler: str, state: str, words: str
) -> None:
    opened = [
        OpenResult(library, f"{library.name}: not there" if library.name in failing else "")
        for library in LIBRARIES
    ]
    check = libraries_check(opened, compiler)
    assert (check.name, check.state, check.found) == ("libraries", state, words)
    assert bool(check.remedy) is (state != "ok")
