"""Which locked Python environment a host gets: by what its tasks compute on, its Python and its processor."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

# The version that all hosts of a cluster compute with; the locks in roles/package_store/files pin it.
TENSORFLOW_VERSION = "2.21.0"
SUPPORTED_PYTHONS = ("3.10", "3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
# gpu: with CUDA of the locked wheels; gpu-system: with the CUDA that the host has itself.
DEVICES = ("cpu", "gpu", "gpu-system")
NAME = re.compile(r"(?P<device>[a-z-]+)-python(?P<python>[0-9.]+)-(?P<machine>[a-z0-9_]+)")


@dataclass(frozen=True)
class HostEnvironment:
    """An environment that TensorFlow has a wheel for: `python` is such as "3.11", `machine` as of `uname -m`.

    Raises ValueError, with all that `problems` finds, where there is no such wheel.
    """

    device: str
    python: str
    machine: str

    def __post_init__(self) -> None:
        """Let no environment exist that could not be installed."""
        found = problems(self.device, self.python, self.machine)
        if found:
            raise ValueError("; ".join(found))

    @property
    def name(self) -> str:
        """The environment in one word, such as "gpu-python3.11-x86_64"."""
        return f"{self.device}-python{self.python}-{self.machine}"

    @classmethod
    def parse(cls, name: str) -> HostEnvironment:
        """Return the environment of a name. Raises ValueError for one that is none."""
        match = NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} is no environment; expected one such as cpu-python3.11-x86_64")
        return cls(match["device"], match["python"], match["machine"])

    @property
    def locks(self) -> tuple[str, ...]:
        """Names of the locks in roles/package_store/files whose packages make up the environment."""
        cuda = ("cuda.txt",) if self.device == "gpu" else ()
        # TensorFlow's wheel without CUDA kernels exists for x86_64 alone.
        small = (self.device, self.machine) == ("cpu", "x86_64")
        return (f"python{self.python}.txt", "tensorflow-cpu.txt" if small else "tensorflow.txt", *cuda)

    @property
    def tensorboard_lock(self) -> str:
        """Name of the lock of TensorBoard's own environment on the same host."""
        return f"tensorboard-python{self.python}.txt"


def every_environment() -> list[HostEnvironment]:
    """Return all that a host may get."""
    kinds = product(DEVICES, SUPPORTED_PYTHONS, MACHINES)
    return [HostEnvironment(*kind) for kind in kinds if not problems(*kind)]


def problems(device: str, python: str, machine: str) -> list[str]:
    """Return in words why TensorFlow has no wheel for such a host; nothing where it has one."""
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
