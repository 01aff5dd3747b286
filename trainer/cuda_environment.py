"""What a task with GPUs is told of CUDA: the locked wheels in its Python environment, or the host's own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainer.host.environment import HostEnvironment

# "nvidia-cuda-nvrtc-cu12==12.9.86" is a wheel whose files are in nvidia/cuda_nvrtc of site-packages.
_LOCKED = re.compile(r"^nvidia-(?P<name>[a-z0-9-]+)-cu[0-9]+==", re.MULTILINE)
# The compilers have no library of their own, but ptxas and libdevice, which XLA takes from there.
COMPILERS = "cuda_nvcc"
PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def cuda_environment(
    environment: HostEnvironment, install_directory: str, lock: str, toolkit: str, libraries: Sequence[str]
) -> dict[str, str]:
    """Return the variables of a host's tasks with GPUs; none where its environment is made for CPUs.

    `lock` is the text of the lock with CUDA's wheels; `toolkit` and `libraries` are the directories of the
    host's own CUDA, without `libraries` those within the toolkit. Raises ValueError where the lock names no
    compilers.
    """
    if environment.device == "gpu":
        return _of_wheels(environment, install_directory, lock)
    if environment.device == "gpu-system":
        own = (f"{toolkit}/lib64", f"{toolkit}/extras/CUPTI/lib64")
        return _variables(tuple(libraries) or own, toolkit)
    return {}


def _of_wheels(environment: HostEnvironment, install_directory: str, lock: str) -> dict[str, str]:
    names = sorted(name.replace("-", "_") for name in _LOCKED.findall(lock))
    if COMPILERS not in names:
        raise ValueError("the lock of the CUDA libraries names no nvidia-cuda-nvcc; write it by `make lock`")
    packages = f"{install_directory}/environment/lib/python{environment.python}/site-packages/nvidia"
    libraries = [f"{packages}/{name}/lib" for name in names if name != COMPILERS]
    return _variables(libraries, f"{packages}/{COMPILERS}")


def _variables(libraries: Sequence[str], toolkit: str) -> dict[str, str]:
    """Return the variables for directories of libraries, and one with bin/ptxas and nvvm/libdevice."""
    return {
        "LD_LIBRARY_PATH": ":".join(libraries),
        "PATH": f"{toolkit}/bin:{PROGRAMS}",
        "XLA_FLAGS": f"--xla_gpu_cuda_data_dir={toolkit}",
        # nvidia-smi's numbers, which the inventory has. CUDA's own order begins with the fastest.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
