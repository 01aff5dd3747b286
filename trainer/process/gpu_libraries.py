"""The libraries that TensorFlow's CUDA build opens, and why they do not open. No TensorFlow is needed.

`python -m trainer.process.gpu_libraries` opens them all in its own environment, and prints what failed.

What follows was seen with the wheel tensorflow 2.21.0 and the loader's own log (LD_DEBUG=files,libs). The
wheel names its folders `nvidia/*/lib` in the RUNPATH of libtensorflow_framework.so.2, all but that of
cuSOLVER: without LD_LIBRARY_PATH it finds every library except libcusolver.so.11, says "Cannot dlopen some
GPU libraries" and trains on the CPU. So a task's environment needs, below the environment's site-packages:

    LD_LIBRARY_PATH   nvidia/cusolver/lib at least. All of nvidia/*/lib, and nothing else, keeps out what a
                      host has in /etc/ld.so.conf and its modules; LD_LIBRARY_PATH comes before RUNPATH, so a
                      foreign folder in it breaks even what the wheel would have found.
    XLA_FLAGS         --xla_gpu_cuda_data_dir=.../nvidia/cuda_nvcc, which holds bin/ptxas and nvvm/libdevice
    PATH              .../nvidia/cuda_nvcc/bin, for ptxas
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from trainer.host.wording import first_of, grouped

# Those of which NVIDIA's driver is made come with no wheel.
DRIVER = "driver"
# Of all libraries together, however slow the disk; and what each gets at least.
SECONDS, _SECONDS_OF_ONE = 120.0, 1.0
_NAMES_SHOWN = 5
# Lazily, as TensorFlow does: ctypes.CDLL would want every function of the driver that the library names.
_OPEN = """
import ctypes, os, sys
loader = ctypes.CDLL(None)
loader.dlopen.restype, loader.dlerror.restype = ctypes.c_void_p, ctypes.c_char_p
if not loader.dlopen(os.fsencode(sys.argv[1]), os.RTLD_LAZY):
    sys.exit(os.fsdecode(loader.dlerror()))
"""
_NOT_FOUND = "cannot open shared object file"
_CUDA_DATA_DIR = re.compile(r"--xla_gpu_cuda_data_dir=(\S+)")
_LIBDEVICE = "nvvm/libdevice/libdevice.10.bc"


@dataclass(frozen=True)
class Library:
    """A library by its `name`; `package` is its folder below site-packages/nvidia, or DRIVER.

    Without one that is `needed` TensorFlow sees no GPU, or fails in the first step that uses it. The others
    are for what none of our models does: NCCL for collectives, CUPTI for profiles.
    """

    name: str
    package: str
    needed: bool = True


@dataclass(frozen=True)
class Opened:
    """A library, and the loader's words where it could not be opened ("" where it could)."""

    library: Library
    error: str = ""


LIBRARIES = (
    # Before it looks for GPUs. NVML, too, without which this TensorFlow sees none.
    Library("libcuda.so.1", DRIVER),
    Library("libnvidia-ml.so.1", DRIVER),
    # Where it has found one: if any of these fails, it leaves all GPUs alone.
    Library("libcudart.so.12", "cuda_runtime"),
    Library("libcublas.so.12", "cublas"),
    Library("libcublasLt.so.12", "cublas"),
    Library("libcufft.so.11", "cufft"),
    Library("libcusolver.so.11", "cusolver"),
    Library("libcusparse.so.12", "cusparse"),
    Library("libcudnn.so.9", "cudnn"),
    # What those open when they are used.
    Library("libnvJitLink.so.12", "nvjitlink"),
    Library("libcudnn_graph.so.9", "cudnn"),
    Library("libcudnn_ops.so.9", "cudnn"),
    Library("libcudnn_cnn.so.9", "cudnn"),
    Library("libcudnn_adv.so.9", "cudnn"),
    Library("libcudnn_heuristic.so.9", "cudnn"),
    Library("libcudnn_engines_precompiled.so.9", "cudnn"),
    Library("libcudnn_engines_runtime_compiled.so.9", "cudnn"),  # itself needs libcuda.so.1
    Library("libnvrtc.so.12", "cuda_nvrtc"),
    Library("libnccl.so.2", "nccl", needed=False),
    Library("libcupti.so.12", "cuda_cupti", needed=False),
)
# The one folder of the wheels that no RUNPATH names for TensorFlow.
_NOT_IN_RUNPATH = "cusolver"


def open_libraries(libraries: Sequence[Library] = LIBRARIES, seconds: float = SECONDS) -> list[Opened]:
    """Open each library as TensorFlow would, with this process's environment, all within so many seconds.

    Each in a process of its own: what one has opened would answer for the next, and one that crashes its
    process takes nothing along.
    """
    deadline = time.monotonic() + seconds
    return [Opened(library, _why_not(library, deadline)) for library in libraries]


def failures(opened: Sequence[Opened]) -> tuple[str, str, str]:
    """Why TensorFlow has no GPU, in words: of the driver, of needed libraries, of the others; "" for none.

    A library of the wheels that misses one of the driver's counts as the driver's.
    """
    drivers = tuple(library.name for library in LIBRARIES if library.package == DRIVER)
    of_driver = [each.error for each in opened if each.error and each.library.package == DRIVER]
    of_wheels = [each for each in opened if each.error and each.library.package != DRIVER]
    own = [(each.error, each.library.needed) for each in of_wheels if not each.error.startswith(drivers)]
    needed = [error for error, is_needed in own if is_needed]
    others = [error for error, is_needed in own if not is_needed]
    return _in_words(of_driver), _in_words(needed), _in_words(others)


def compiler_problem(environment: Mapping[str, str]) -> str:
    """What XLA lacks to compile for a GPU: ptxas and libdevice, "" for nothing.

    It is told of a folder by XLA_FLAGS; without that it searches for itself, and only PATH is looked at here.
    """
    told = _CUDA_DATA_DIR.search(environment.get("XLA_FLAGS", ""))
    if told is None:
        found = shutil.which("ptxas", path=environment.get("PATH", ""))
        return "" if found else "XLA_FLAGS names no --xla_gpu_cuda_data_dir, and ptxas is not in PATH"
    folder = Path(told[1])
    compiler = folder / "bin/ptxas"
    if not os.access(compiler, os.X_OK):
        return f"{compiler} is no program that can be run"
    return "" if (folder / _LIBDEVICE).is_file() else f"{folder / _LIBDEVICE} is not there"


def _in_words(errors: Sequence[str]) -> str:
    """The loader's "name: reason" each, those with one reason together."""
    parts = (error.partition(": ") for error in errors)
    names_with = grouped((reason, name) for name, _, reason in parts)
    told = {reason: first_of([*dict.fromkeys(names)], _NAMES_SHOWN) for reason, names in names_with.items()}
    return "; ".join(f"{names}: {reason}" for reason, names in told.items())


def _why_not(library: Library, deadline: float) -> str:
    error = _open(library.name, deadline)
    if library.package in {DRIVER, _NOT_IN_RUNPATH} or not error.startswith(f"{library.name}: {_NOT_FOUND}"):
        return error
    path = Path(sysconfig.get_path("purelib"), "nvidia", library.package, "lib", library.name)
    return _open(str(path), deadline) if path.exists() else error


def _open(name: str, deadline: float) -> str:
    seconds = max(deadline - time.monotonic(), _SECONDS_OF_ONE)
    command = [sys.executable, "-I", "-S", "-c", _OPEN, name]
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{name}: not open after {seconds:.0f} s"
    if ended.returncode < 0:
        return f"{name}: its loading ended by {signal.Signals(-ended.returncode).name}"
    said = ended.stderr.decode(errors="replace").strip().splitlines()
    return (said or [f"exit code {ended.returncode}"])[-1] if ended.returncode else ""


def main() -> int:
    """Print one line of JSON: each library, and what XLA lacks; returns 1 where something needed fails.

    The driver's own are told, and do not count: a machine image is made without them.
    """
    opened = open_libraries()
    compiler = compiler_problem(os.environ)
    libraries = [{**asdict(each.library), "error": each.error} for each in opened]
    sys.stdout.write(json.dumps({"libraries": libraries, "compiler": compiler}) + "\n")
    _, needed, others = failures(opened)
    return 1 if needed or others or compiler else 0


if __name__ == "__main__":
    sys.exit(main())
