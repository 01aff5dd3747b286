"""Computes the environment variables with which a task finds CUDA: the locked wheels, or the host's own."""

import re
from collections.abc import Sequence

from plugins.module_utils.environments.environment import HostEnvironment

# "nvidia-cuda-nvrtc-cu12==12.9.86" is a wheel whose files are in nvidia/cuda_nvrtc of site-packages.
_LOCKED = re.compile(r"^nvidia-(?P<name>[a-z0-9-]+)-cu[0-9]+==", re.MULTILINE)
# The wheel of the compilers has no shared libraries. It has ptxas and libdevice, which XLA loads.
_COMPILERS = "cuda_nvcc"
_PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def cuda_environment(
    environment: str, install_directory: str, lock: str, toolkit: str, libraries: Sequence[str]
) -> dict[str, str]:
    """Return {environment variable: value} for a host's tasks with GPUs; {} for a CPU environment.

    `environment` is the name of the host's environment, and `lock` the text of the lock with CUDA's wheels.
    `toolkit` and `libraries` are directories of the host's own CUDA, which count if the environment uses it;
    without `libraries`, those within the toolkit are used. Raises ValueError if the environment needs the
    lock's wheels and the lock lacks the compilers, or if `environment` is no name of an environment.
    """
    host = HostEnvironment.parse(environment)
    if host.device == "gpu":
        names = sorted(name.replace("-", "_") for name in _LOCKED.findall(lock))
        if _COMPILERS not in names:
            raise ValueError(
                "the lock of the CUDA libraries names no nvidia-cuda-nvcc; write it by `make lock`"
            )
        packages = f"{install_directory}/environment/lib/python{host.python}/site-packages/nvidia"
        toolkit = f"{packages}/{_COMPILERS}"
        libraries = [f"{packages}/{name}/lib" for name in names if name != _COMPILERS]
    elif host.device == "gpu-system":
        libraries = libraries or (f"{toolkit}/lib64", f"{toolkit}/extras/CUPTI/lib64")
    else:
        return {}
    return {
        "LD_LIBRARY_PATH": ":".join(libraries),
        "PATH": f"{toolkit}/bin:{_PROGRAMS}",
        "XLA_FLAGS": f"--xla_gpu_cuda_data_dir={toolkit}",
        # The inventory counts GPUs as nvidia-smi does; by default CUDA counts from the fastest.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
