"""The checks of TensorFlow in a task's environment, a line of JSON each; only trainer/doctor.py runs this.

With `--import` it makes only the check `tensorflow`.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from trainer.doctor import NO_GPU
from trainer.host.check import Check
from trainer.host.error_lines import error_in_short
from trainer.host.gpu_support import JIT_DRIVER
from trainer.process import gpus
from trainer.process.loading import loading_tensorflow

# With integers up to 8, products and sums are exact in float32 and in the TF32 of GPUs. So the result must
# equal NumPy's result exactly, and no tolerance hides a wrong result.
SIZE, LARGEST = 512, 8
_FOUND_LENGTH = 300
# The first match counts, because a message about a missing compiler also contains "PTX".
_REMEDIES = (
    (
        ("ptxas", "libdevice", "cuda_data_dir"),
        "run deploy.yml, which tells XLA where its compiler is (XLA_FLAGS in the task's environment file)",
    ),
    (
        ("UNSUPPORTED_PTX_VERSION", "unsupported toolchain"),
        f"the driver is too old to compile this: install {JIT_DRIVER} or newer (roles/nvidia_cuda/README.md)",
    ),
    (
        ("PTX", "no kernel image", "sm_", "compute capability"),
        "this TensorFlow has code for compute capability 6.0 to 9.x alone: give the task another GPU",
    ),
    (
        ("out of memory", "OUT_OF_MEMORY", "ResourceExhausted"),
        "another process holds the GPU's memory: `nvidia-smi` on the host names it",
    ),
)
_OTHERWISE = "`nvidia-smi` and `journalctl -k` (Xid) on the host show what the driver reports"


def tensorflow_check(visible: Sequence[str]) -> Check:
    """Return the check `tensorflow`: "ok" if TensorFlow can be imported and suits the task, else "failed".

    If the task has GPUs, TensorFlow must be built with CUDA. `visible` are the task's GPUs, as
    `gpus.visible_devices` returns them.
    """
    try:
        with loading_tensorflow():
            import tensorflow as tf
    except Exception as error:  # a damaged installation may raise anything
        found = f"it cannot be imported: {_in_short(error)}"
        return Check("tensorflow", "failed", found, "run deploy.yml, which installs it")
    built = tf.sysconfig.get_build_info()
    cuda = built.get("cuda_version") if tf.test.is_built_with_cuda() else None
    kind = f"built with CUDA {cuda} and cuDNN {built.get('cudnn_version')}" if cuda else "built without CUDA"
    found = f"TensorFlow {tf.__version__}, {kind}, Python {platform.python_version()}"
    if visible and not cuda:
        return Check("tensorflow", "failed", found, "run deploy.yml, which installs the one with CUDA")
    return Check("tensorflow", "ok", found)


def devices_check(visible: Sequence[str]) -> Check:
    """Return the check `devices`: "ok" if TensorFlow sees as many GPUs as `visible` has, else "failed".

    `visible` are the task's GPUs; without any, the check is "skipped".
    """
    if not visible:
        return Check("devices", "skipped", NO_GPU)
    seen = gpus.seen_by_tensorflow()
    if len(seen) == len(visible):
        return Check("devices", "ok", ", ".join(seen))
    given_by = "what the inventory gives (trainer_worker_gpus, trainer_ps_gpus)"
    remedy = f"`nvidia-smi -L` on the host lists its GPUs; {given_by} are to be numbers of that list"
    return Check("devices", "failed", gpus.shortfall(visible, seen), remedy)


def product_check(visible: Sequence[str]) -> Check:
    """Return the check `product`: "ok" if a matrix product is right on every GPU of the task, else "failed".

    `visible` are the task's GPUs; without any, the product is computed on the CPU.
    """
    devices = [f"GPU:{place}" for place in range(len(visible))] or ["CPU:0"]
    began = time.monotonic()
    for device in devices:
        try:
            problem = _product_problem(device)
        except Exception as error:  # TensorFlow, XLA and CUDA may raise anything
            problem = _in_short(error)
        if problem:
            return Check("product", "failed", f"on {device}: {problem}", remedy_of(problem))
    found = f"{SIZE} x {SIZE} on {', '.join(devices)} equals NumPy's result, {time.monotonic() - began:.1f} s"
    return Check("product", "ok", found)


def _product_problem(device: str) -> str:
    """Return what is wrong with a product that XLA compiles for a device, in words; "" if it is right.

    XLA is used because it fails on a GPU that is too new, which TensorFlow nevertheless lists as a device.
    The result is 2 * product + 1, because for the product alone XLA would call cuBLAS and compile nothing.
    """
    import tensorflow as tf

    numbers = np.random.default_rng(1).integers(-LARGEST, LARGEST + 1, (2, SIZE, SIZE))
    left, right = numbers.astype(np.float32)

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def compiled(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return 2.0 * tf.matmul(left, right) + 1.0

    with tf.device(f"/device:{device}"):
        result = compiled(tf.constant(left), tf.constant(right))
    if not result.device.endswith(device):
        return f"the result is on {result.device or 'no device'}"
    wrong = int(np.sum(result.numpy() != 2 * (numbers[0] @ numbers[1]) + 1))
    return f"{wrong} of {SIZE * SIZE} numbers are not NumPy's" if wrong else ""


def remedy_of(problem: str) -> str:
    """Return what to do about an error of TensorFlow, XLA or CUDA, in one line.

    For an unknown error, the line says where to look for its cause.
    """
    return next((remedy for words, remedy in _REMEDIES if any(word in problem for word in words)), _OTHERWISE)


def _in_short(error: Exception) -> str:
    return " ".join(error_in_short(error).split())[:_FOUND_LENGTH]


def main(arguments: Sequence[str]) -> int:
    """Print each check as a line of JSON when it is made, up to the first failed check; return 0.

    With the arguments ["--import"], make only the check `tensorflow`; else all three.
    """
    steps: list[Callable[[Sequence[str]], Check]] = [tensorflow_check]
    if list(arguments) != ["--import"]:
        steps += [devices_check, product_check]
    visible = gpus.visible_devices(os.environ)
    for step in steps:
        check = step(visible)
        sys.stdout.write(json.dumps(check.to_json()) + "\n")
        sys.stdout.flush()
        if check.state == "failed":
            break
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # skips CUDA's work at the end of a process, which the checks do not need
