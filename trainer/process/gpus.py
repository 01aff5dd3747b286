"""The GPUs that a task was given, and whether TensorFlow sees exactly these GPUs."""

from collections.abc import Mapping, MutableMapping, Sequence
from itertools import takewhile
from pathlib import Path

from trainer.contract.exit_codes import CONFIGURATION
from trainer.process import gpu_libraries
from trainer.process.failure import TaskFailure

# Part of the path of each library in a wheel of NVIDIA's.
WHEELS = "/site-packages/nvidia/"
VISIBLE = "CUDA_VISIBLE_DEVICES"
DOCTOR = "`ansible-playbook doctor.yml` looks at every link from the device to a product on it"


def prepare(environment: MutableMapping[str, str]) -> None:
    """Set CUDA_DEVICE_ORDER to PCI_BUS_ID in `environment`, unless it is set already.

    CUDA then numbers the GPUs as nvidia-smi and the inventory do; by default the fastest GPU is first. Call
    this before TensorFlow is loaded.
    """
    environment.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def cuda_of_environment(prefix: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return {variable: value} with which a program finds the CUDA wheels of its own environment at `prefix`.

    `inherited` are the variables of the task, which name the CUDA wheels of psfleet's environment. Return {}
    if they name none, as without GPUs and with the host's own CUDA.
    """
    packages = next(prefix.glob("lib/python3*/site-packages/nvidia"), None)
    if packages is None or WHEELS not in inherited.get("LD_LIBRARY_PATH", ""):
        return {}
    toolkit = packages / "cuda_nvcc"
    path = [folder for folder in inherited.get("PATH", "").split(":") if WHEELS not in folder]
    return {
        "LD_LIBRARY_PATH": ":".join(map(str, sorted(packages.glob("*/lib")))),
        "PATH": ":".join([f"{toolkit}/bin", *path]),
        "XLA_FLAGS": f"--xla_gpu_cuda_data_dir={toolkit}",
    }


def visible_devices(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the numbers or UUIDs of the GPUs in CUDA_VISIBLE_DEVICES; () if it is not set or empty.

    As in CUDA, a negative number or an empty entry ends the list: "0,1,-1,2" -> ("0", "1").
    """
    entries = (gpu.strip() for gpu in environment.get(VISIBLE, "").split(","))
    return tuple(takewhile(lambda gpu: gpu and not gpu.startswith("-"), entries))


def require_visible(task: str, environment: Mapping[str, str]) -> None:
    """Raise TaskFailure (`configuration`) unless TensorFlow sees as many GPUs as the task was given.

    The task was given the GPUs in CUDA_VISIBLE_DEVICES of `environment`. Without any, do nothing; else load
    TensorFlow, which would only print a line and train on the CPU.
    """
    own = visible_devices(environment)
    seen = seen_by_tensorflow() if own else []
    if len(seen) != len(own):
        reason = f"{task} {shortfall(own, seen)}: {_reason(len(seen))}; {DOCTOR}"
        raise TaskFailure(CONFIGURATION, reason)


def require_driver(task: str, environment: Mapping[str, str]) -> None:
    """Raise TaskFailure (`configuration`) if the task was given GPUs but NVIDIA's driver does not open.

    The task was given the GPUs in CUDA_VISIBLE_DEVICES of `environment`. Without any, do nothing. This does
    not load TensorFlow, which would train on the CPU without a driver.
    """
    own = visible_devices(environment)
    if not own:
        return
    driver = [library for library in gpu_libraries.LIBRARIES if library.package == gpu_libraries.DRIVER]
    missing, _, _ = gpu_libraries.failures(gpu_libraries.open_libraries(driver))
    if missing:
        reason = f"{task} was given {_in_words(own)}, and NVIDIA's driver does not answer ({missing})"
        raise TaskFailure(CONFIGURATION, f"{reason}; {DOCTOR}")


def shortfall(own: Sequence[str], seen: Sequence[str]) -> str:
    """Return in words which GPUs a task was given (`own`), and which GPUs TensorFlow sees (`seen`).

    Example: shortfall(["0"], []) -> "was given GPU 0 (CUDA_VISIBLE_DEVICES), and TensorFlow sees none"
    """
    return f"was given {_in_words(own)}, and TensorFlow sees {', '.join(seen) or 'none'}"


def _in_words(own: Sequence[str]) -> str:
    gpus = f"GPU {own[0]}" if len(own) == 1 else f"GPUs {', '.join(own)}"
    return f"{gpus} ({VISIBLE})"


def seen_by_tensorflow() -> list[str]:
    """Return a text for each GPU that TensorFlow sees: "GPU:0 NVIDIA H200 (compute capability 9.0)".

    Return [] without GPUs. This loads TensorFlow, but takes no memory on the GPUs.
    """
    import tensorflow as tf

    names = []
    for gpu in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        major, minor = details.get("compute_capability", ("?", "?"))
        name = f"{details.get('device_name', 'of unknown name')} (compute capability {major}.{minor})"
        names.append(f"{gpu.name.removeprefix('/physical_device:')} {name}")
    return names


def _reason(seen: int) -> str:
    import tensorflow as tf

    if not tf.test.is_built_with_cuda():
        return "this TensorFlow is built without CUDA; run deploy.yml, which installs the one with CUDA"
    driver, needed, _ = gpu_libraries.failures(gpu_libraries.open_libraries())
    if driver:
        return f"NVIDIA's driver does not answer ({driver})"
    if needed:
        return f"libraries of CUDA cannot be opened ({needed}); run deploy.yml, which says where they are"
    if seen:
        return "CUDA leaves out a number that is of no GPU and all after it, TensorFlow a GPU that is too old"
    return "its own lines above say why"
