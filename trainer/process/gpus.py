"""The GPUs that a task was given, and whether TensorFlow sees just these."""

from collections.abc import Mapping, MutableMapping, Sequence
from itertools import takewhile

from trainer.contract.exit_codes import CONFIGURATION
from trainer.process import gpu_libraries
from trainer.process.failure import TaskFailure

VISIBLE = "CUDA_VISIBLE_DEVICES"
DOCTOR = "`ansible-playbook doctor.yml` looks at every link from the device to a product on it"


def prepare(environment: MutableMapping[str, str]) -> None:
    """Let CUDA count the GPUs as nvidia-smi and the inventory do; before TensorFlow is loaded.

    Left to itself it counts the fastest one first: on a machine of unlike GPUs, GPU 0 would be another one.
    """
    environment.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def given(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES gives, by number or UUID; none where it is not set.

    As CUDA reads it, -1 ends the list.
    """
    named = (gpu.strip() for gpu in environment.get(VISIBLE, "").split(","))
    return tuple(takewhile(lambda gpu: gpu and not gpu.startswith("-"), named))


def require_given(task: str, environment: Mapping[str, str]) -> None:
    """Let a task that was given GPUs go on only where TensorFlow sees as many; loads TensorFlow for that.

    Raises TaskFailure of class `configuration`: TensorFlow itself would say a line and train on the CPU.
    """
    asked = given(environment)
    seen = seen_by_tensorflow() if asked else []
    if len(seen) != len(asked):
        reason = f"{task} {shortfall(asked, seen)}: {_reason(len(seen))}; {DOCTOR}"
        raise TaskFailure(CONFIGURATION, reason)


def require_driver(task: str, environment: Mapping[str, str]) -> None:
    """Let a task that was given GPUs go on only where NVIDIA's driver opens; no TensorFlow is loaded.

    Raises TaskFailure of class `configuration`: no program computes on a GPU without a driver, and
    TensorFlow trains on the CPU then.
    """
    asked = given(environment)
    if not asked:
        return
    driver = [library for library in gpu_libraries.LIBRARIES if library.package == gpu_libraries.DRIVER]
    missing, _, _ = gpu_libraries.failures(gpu_libraries.open_libraries(driver))
    if missing:
        reason = f"{task} was given {_in_words(asked)}, and NVIDIA's driver does not answer ({missing})"
        raise TaskFailure(CONFIGURATION, f"{reason}; {DOCTOR}")


def shortfall(asked: Sequence[str], seen: Sequence[str]) -> str:
    """What a task was given, and what TensorFlow sees of it, in words."""
    return f"was given {_in_words(asked)}, and TensorFlow sees {', '.join(seen) or 'none'}"


def _in_words(asked: Sequence[str]) -> str:
    gpus = f"GPU {asked[0]}" if len(asked) == 1 else f"GPUs {', '.join(asked)}"
    return f"{gpus} ({VISIBLE})"


def seen_by_tensorflow() -> list[str]:
    """The GPUs that TensorFlow sees, such as "GPU:0 NVIDIA H200 (compute capability 9.0)". It takes none."""
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
