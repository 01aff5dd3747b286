"""The libraries that TensorFlow's CUDA build opens, and why they do not open. This needs no TensorFlow.

`python -m trainer.process.gpu_libraries` opens them all in its own environment, and prints what failed.

The following was observed with the wheel tensorflow 2.21.0 and the loader's own log (LD_DEBUG=files,libs).
The RUNPATH of libtensorflow_framework.so.2 has the wheels' folders `nvidia/*/lib`, except that of cuSOLVER.
So without LD_LIBRARY_PATH TensorFlow opens every library but libcusolver.so.11, prints "Cannot dlopen some
GPU libraries" and trains on the CPU. A task's environment needs these folders below its site-packages:

    LD_LIBRARY_PATH   nvidia/cusolver/lib at least. With all of nvidia/*/lib, and nothing else, no library
                      of the host's /etc/ld.so.conf or modules is used. LD_LIBRARY_PATH comes before RUNPATH,
                      so a foreign folder in it can hide the wheels' own libraries.
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

# The `package` of the libraries of NVIDIA's driver, which are in no wheel.
DRIVER = "driver"
# The time for all libraries together, even on a slow disk, and the shortest time limit for one library.
SECONDS, _SECONDS_OF_ONE = 120.0, 1.0
_NAMES_SHOWN = 5
# RTLD_LAZY, as TensorFlow uses it: ctypes.CDLL would need every driver function that the library refers to.
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

    Without a `needed` library TensorFlow sees no GPU, or fails in the first step that uses the library. The
    built-in models do not use the other libraries: NCCL is for collectives, CUPTI for profiles.
    """

    name: str
    package: str
    needed: bool = True


@dataclass(frozen=True)
class OpenResult:
    """The result of opening a library: the loader's error, or "" if the library was opened."""

    library: Library
    error: str = ""


LIBRARIES = (
    # TensorFlow opens these before it looks for GPUs. Without NVML this version sees no GPU.
    Library("libcuda.so.1", DRIVER),
    Library("libnvidia-ml.so.1", DRIVER),
    # TensorFlow opens these once it has found a GPU. If one of these fails, TensorFlow uses no GPU.
    Library("libcudart.so.12", "cuda_runtime"),
    Library("libcublas.so.12", "cublas"),
    Library("libcublasLt.so.12", "cublas"),
    Library("libcufft.so.11", "cufft"),
    Library("libcusolver.so.11", "cusolver"),
    Library("libcusparse.so.12", "cusparse"),
    Library("libcudnn.so.9", "cudnn"),
    # The libraries above open these libraries when they are used.
    Library("libnvJitLink.so.12", "nvjitlink"),
    Library("libcudnn_graph.so.9", "cudnn"),
    Library("libcudnn_ops.so.9", "cudnn"),
    Library("libcudnn_cnn.so.9", "cudnn"),
    Library("libcudnn_adv.so.9", "cudnn"),
    Library("libcudnn_heuristic.so.9", "cudnn"),
    Library("libcudnn_engines_precompiled.so.9", "cudnn"),
    Library("libcudnn_engines_runtime_compiled.so.9", "cudnn"),  # this library needs libcuda.so.1
    Library("libnvrtc.so.12", "cuda_nvrtc"),
    Library("libnccl.so.2", "nccl", needed=False),
    Library("libcupti.so.12", "cuda_cupti", needed=False),
)
# The only folder of the wheels that is in no RUNPATH of TensorFlow.
_NOT_IN_RUNPATH = "cusolver"


def open_libraries(libraries: Sequence[Library] = LIBRARIES, seconds: float = SECONDS) -> list[OpenResult]:
    """Return the result of opening each library as TensorFlow would, in the order of `libraries`.

    After `seconds`, each further library gets 1 s. Each library is opened in a process of its own, with this
    process's environment: a library that is open already would hide that the next library does not find it,
    and a library may crash its process.
    """
    deadline = time.monotonic() + seconds
    return [OpenResult(library, _error_of(library, deadline)) for library in libraries]


def failures(results: Sequence[OpenResult]) -> tuple[str, str, str]:
    """Return three texts: the errors of the driver's libraries, of needed libraries, and of the others.

    A text is "" if there is no such error. If a library of the wheels fails because it lacks a library of the
    driver, only the driver's error counts.
    """
    drivers = tuple(library.name for library in LIBRARIES if library.package == DRIVER)
    driver_errors = [each.error for each in results if each.error and each.library.package == DRIVER]
    of_wheels = [each for each in results if each.error and each.library.package != DRIVER]
    own = [(each.error, each.library.needed) for each in of_wheels if not each.error.startswith(drivers)]
    needed = [error for error, is_needed in own if is_needed]
    others = [error for error, is_needed in own if not is_needed]
    return _in_words(driver_errors), _in_words(needed), _in_words(others)


def compiler_problem(environment: Mapping[str, str]) -> str:
    """Return what XLA lacks to compile for a GPU (ptxas or libdevice), in words; "" if it has both.

    XLA_FLAGS in `environment` names the folder with both. Without XLA_FLAGS, XLA searches in several places,
    and this function only looks for ptxas in PATH.
    """
    flag = _CUDA_DATA_DIR.search(environment.get("XLA_FLAGS", ""))
    if flag is None:
        compiler_path = shutil.which("ptxas", path=environment.get("PATH", ""))
        return "" if compiler_path else "XLA_FLAGS names no --xla_gpu_cuda_data_dir, and ptxas is not in PATH"
    folder = Path(flag[1])
    compiler = folder / "bin/ptxas"
    if not os.access(compiler, os.X_OK):
        return f"{compiler} is no program that can be run"
    return "" if (folder / _LIBDEVICE).is_file() else f"{folder / _LIBDEVICE} is not there"


def _in_words(errors: Sequence[str]) -> str:
    """Return the loader's errors ("name: reason") as one text, "" without errors.

    Of the names with the same reason, each is shown once, and at most five (then " and 2 more").

    Example: _in_words(["a: not found", "b: not found", "c: too old"]) -> "a, b: not found; c: too old"
    """
    parts = (error.partition(": ") for error in errors)
    names_with = grouped((reason, name) for name, _, reason in parts)
    shown = {reason: first_of([*dict.fromkeys(names)], _NAMES_SHOWN) for reason, names in names_with.items()}
    return "; ".join(f"{names}: {reason}" for reason, names in shown.items())


def _error_of(library: Library, deadline: float) -> str:
    """Return the loader's error for a library; "" if it opens by its name, or else in its wheel's folder.

    `deadline` is on the monotonic clock.
    """
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
    printed = ended.stderr.decode(errors="replace").strip().splitlines()
    return (printed or [f"exit code {ended.returncode}"])[-1] if ended.returncode else ""


def main() -> int:
    """Print one line of JSON: {"libraries": each library with its error, "compiler": what XLA lacks or ""}.

    Return 1 if a library of the wheels cannot be opened or XLA lacks something, else 0. The driver's
    libraries are printed but do not count, because a machine image is built without a driver.
    """
    results = open_libraries()
    compiler = compiler_problem(os.environ)
    libraries = [{**asdict(each.library), "error": each.error} for each in results]
    sys.stdout.write(json.dumps({"libraries": libraries, "compiler": compiler}) + "\n")
    _, needed, others = failures(results)
    return 1 if needed or others or compiler else 0


if __name__ == "__main__":
    sys.exit(main())
