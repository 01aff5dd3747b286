"""The locked Python environment of a host. Its tasks' devices, Python version and processor decide which."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

# The TensorFlow version of all hosts of a cluster, which the locks in roles/package_store/files pin.
TENSORFLOW_VERSION = "2.21.0"
SUPPORTED_PYTHONS = ("3.10", "3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
# gpu: with CUDA from the locked wheels; gpu-system: with the host's own CUDA.
DEVICES = ("cpu", "gpu", "gpu-system")
NAME = re.compile(r"(?P<device>[a-z-]+)-python(?P<python>[0-9.]+)-(?P<machine>[a-z0-9_]+)")


@dataclass(frozen=True)
class HostEnvironment:
    """An environment for which TensorFlow has a wheel; raises ValueError with all `problems` if it has none.

    `device` is one of DEVICES, `python` is like "3.11", and `machine` is as `uname -m` prints it.
    """

    device: str
    python: str
    machine: str

    def __post_init__(self) -> None:
        """Raise ValueError if the environment cannot be installed."""
        found = problems(self.device, self.python, self.machine)
        if found:
            raise ValueError("; ".join(found))

    @property
    def name(self) -> str:
        """The environment's name, such as "gpu-python3.11-x86_64"."""
        return f"{self.device}-python{self.python}-{self.machine}"

    @classmethod
    def parse(cls, name: str) -> HostEnvironment:
        """Return the environment with this name, such as "gpu-python3.11-x86_64". Raises ValueError."""
        match = NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} is no environment; expected one such as cpu-python3.11-x86_64")
        return cls(match["device"], match["python"], match["machine"])

    @property
    def locks(self) -> tuple[str, ...]:
        """The names of the files in roles/package_store/files that together are the environment's lock."""
        cuda = ("cuda.txt",) if self.device == "gpu" else ()
        # TensorFlow's wheel without CUDA kernels exists only for x86_64.
        small = (self.device, self.machine) == ("cpu", "x86_64")
        return (f"python{self.python}.txt", "tensorflow-cpu.txt" if small else "tensorflow.txt", *cuda)

    @property
    def tensorboard_lock(self) -> str:
        """The file name of the lock of TensorBoard's own environment for the same host."""
        return f"tensorboard-python{self.python}.txt"


def every_environment() -> list[HostEnvironment]:
    """Return all environments that a host may get, by device, then by version of Python, then by machine."""
    kinds = product(DEVICES, SUPPORTED_PYTHONS, MACHINES)
    return [HostEnvironment(*kind) for kind in kinds if not problems(*kind)]


def problems(device: str, python: str, machine: str) -> list[str]:
    """Return, in words, why TensorFlow has no wheel for such a host; [] if it has one."""
    found = []
    if device not in DEVICES:
        found.append(f"{device!r} is no device of an environment; expected {', '.join(DEVICES)}")
    if python not in SUPPORTED_PYTHONS:
        found.append(
            f"TensorFlow {TENSORFLOW_VERSION} has no wheel for Python {python}, "
            f"only for {SUPPORTED_PYTHONS[0]} to {SUPPORTED_PYTHONS[-1]}"
        )
    if machine not in MACHINES:
        found.append(
            f"TensorFlow {TENSORFLOW_VERSION} has no wheel for {machine}, only for {' and '.join(MACHINES)}"
        )
    elif device in DEVICES[1:] and machine != MACHINES[0]:
        found.append(
            f"TensorFlow {TENSORFLOW_VERSION} has no GPU wheel for {machine}, only for {MACHINES[0]}"
        )
    return found
