"""The environment variables by which a task with GPUs finds CUDA."""

import pytest

from psfleet.run.cuda_environment import cuda_environment
from tests.repository import ROOT

LOCK = (ROOT / "roles/package_store/files/cuda.txt").read_text(encoding="utf-8")


def test_a_gpu_task_uses_the_cuda_libraries_of_its_environment() -> None:
    """The locked wheels have their libraries in nvidia/*/lib, and nvidia-cuda-nvcc-cu12 has none."""
    found = cuda_environment("gpu-python3.13-x86_64", "/opt/ml", LOCK, "/usr/local/cuda", [])
    packages = "/opt/ml/environment/lib/python3.13/site-packages/nvidia"
    libraries = found["LD_LIBRARY_PATH"].split(":")
    assert {f"{packages}/{name}/lib" for name in ("cuda_runtime", "cudnn", "nccl", "nvjitlink")} < set(
        libraries
    )
    locked = [line for line in LOCK.splitlines() if line.startswith("nvidia-")]
    assert len(libraries) == len(set(libraries)) == len(locked) - 1
    assert found["PATH"].startswith(f"{packages}/cuda_nvcc/bin:")
    assert found["XLA_FLAGS"] == f"--xla_gpu_cuda_data_dir={packages}/cuda_nvcc"
    assert found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID", "the inventory counts as nvidia-smi does"


def test_a_gpu_task_may_use_the_cuda_of_its_host() -> None:
    name = "gpu-system-python3.11-x86_64"
    found = cuda_environment(name, "/opt/psfleet", LOCK, "/opt/cuda", [])
    assert found["LD_LIBRARY_PATH"] == "/opt/cuda/lib64:/opt/cuda/extras/CUPTI/lib64"
    assert found["PATH"].startswith("/opt/cuda/bin:")
    assert found["XLA_FLAGS"] == "--xla_gpu_cuda_data_dir=/opt/cuda"
    libraries = ["/opt/cuda/lib64", "/opt/cudnn/lib"]
    found = cuda_environment(name, "/opt/psfleet", LOCK, "/opt/cuda", libraries)
    assert found["LD_LIBRARY_PATH"] == ":".join(libraries)


def test_a_host_without_gpus_gets_no_variables_of_cuda() -> None:
    assert cuda_environment("cpu-python3.11-aarch64", "/opt/psfleet", LOCK, "/usr/local/cuda", []) == {}


def test_a_lock_without_the_compilers_is_refused() -> None:
    with pytest.raises(ValueError, match="make lock"):
        cuda_environment(
            "gpu-python3.11-x86_64", "/opt/psfleet", "nvidia-cudnn-cu12==9\n", "/usr/local/cuda", []
        )
