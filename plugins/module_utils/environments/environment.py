"""The locked Python environment of a host. Its tasks' devices, Python version and processor decide which."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

# The TensorFlow of the trainer, and of programs that name no other. The locks in roles/package_store/files
# pin it.
TENSORFLOW_VERSION = "2.21.0"
SUPPORTED_PYTHONS = ("3.10", "3.11", "3.12", "3.13")
# {release of TensorFlow that a program may name: (its newest patch, the supported Pythons that it has wheels
# for)}
TENSORFLOW_RELEASES = {
    "2.12": ("2.12.1", SUPPORTED_PYTHONS[:2]),
    "2.13": ("2.13.1", SUPPORTED_PYTHONS[:2]),
    "2.14": ("2.14.1", SUPPORTED_PYTHONS[:2]),
    "2.15": ("2.15.1", SUPPORTED_PYTHONS[:2]),
    "2.16": ("2.16.2", SUPPORTED_PYTHONS[:3]),
    "2.17": ("2.17.1", SUPPORTED_PYTHONS[:3]),
    "2.18": ("2.18.1", SUPPORTED_PYTHONS[:3]),
    "2.19": ("2.19.1", SUPPORTED_PYTHONS[:3]),
    "2.20": ("2.20.0", SUPPORTED_PYTHONS),
    "2.21": (TENSORFLOW_VERSION, SUPPORTED_PYTHONS),
}
# Older releases have no extra `and-cuda`, which brings CUDA as wheels.
WITHOUT_CUDA_WHEELS = ("2.12", "2.13")
MACHINES = ("x86_64", "aarch64")
# gpu: with CUDA from the locked wheels; gpu-system: with the host's own CUDA.
DEVICES = ("cpu", "gpu", "gpu-system")
NAME = re.compile(
    r"(?P<device>[a-z-]+)-python(?P<python>[0-9.]+)-(?P<machine>[a-z0-9_]+)"
    r"(-tensorflow(?P<tensorflow>[0-9]+\.[0-9]+[0-9a-z.+]*))?"
)


@dataclass(frozen=True)
class HostEnvironment:
    """An environment for which TensorFlow has a wheel; otherwise making it raises ValueError (`problems`).

    `device` is one of DEVICES, `python` is like "3.11", `machine` is as `uname -m` prints it, and
    `tensorflow` is the version of TensorFlow.
    """

    device: str
    python: str
    machine: str
    tensorflow: str = TENSORFLOW_VERSION

    def __post_init__(self) -> None:
        """Raise ValueError if the environment cannot be installed."""
        found = problems(self.device, self.python, self.machine, self.tensorflow)
        if found:
            raise ValueError("; ".join(found))

    @property
    def name(self) -> str:
        """The environment's name: "gpu-python3.11-x86_64", or "cpu-python3.11-x86_64-tensorflow2.15.1"."""
        own = "" if self.tensorflow == TENSORFLOW_VERSION else f"-tensorflow{self.tensorflow}"
        return f"{self.device}-python{self.python}-{self.machine}{own}"

    @classmethod
    def parse(cls, name: str) -> HostEnvironment:
        """Return the environment with this name, such as "gpu-python3.11-x86_64".

        Raises ValueError for another form, and if TensorFlow has no wheel for it.
        """
        match = NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} is no environment; expected one such as cpu-python3.11-x86_64")
        version = match["tensorflow"] or TENSORFLOW_VERSION
        return cls(match["device"], match["python"], match["machine"], version)

    @property
    def tensorflow_package(self) -> str:
        """The package of TensorFlow: "tensorflow-cpu", which has no CUDA kernels, if it fits the hosts."""
        small = (self.device, self.machine) == ("cpu", "x86_64")  # it has wheels for no other processor
        return "tensorflow-cpu" if small else "tensorflow"

    @property
    def locks(self) -> tuple[str, ...]:
        """The names of the files in roles/package_store/files that together are the environment's lock."""
        cuda = ("cuda.txt",) if self.device == "gpu" else ()
        return (f"python{self.python}.txt", f"{self.tensorflow_package}.txt", *cuda)

    @property
    def tensorboard_lock(self) -> str:
        """The file name of the lock of TensorBoard's own environment for the same host."""
        return f"tensorboard-python{self.python}.txt"


def every_environment() -> list[HostEnvironment]:
    """Return all environments that a host may get, by device, then by version of Python, then by machine."""
    kinds = product(DEVICES, SUPPORTED_PYTHONS, MACHINES)
    return [HostEnvironment(*kind) for kind in kinds if not problems(*kind)]


def release_of(tensorflow: str) -> str:
    """Return the release of a version of TensorFlow. Example: "2.15.0+sm120" -> "2.15"."""
    return ".".join(tensorflow.split(".")[:2])


def pythons_of(tensorflow: str) -> tuple[str, ...]:
    """Return the supported Pythons for which a version of TensorFlow has wheels, the oldest first, or ().

    A version such as 2.15.0+sm120 is a wheel of the user's own, which may be for any supported Python.
    """
    pythons = TENSORFLOW_RELEASES.get(release_of(tensorflow), ("", ()))[1]
    return SUPPORTED_PYTHONS if pythons and "+" in tensorflow else pythons


def problems(device: str, python: str, machine: str, tensorflow: str = TENSORFLOW_VERSION) -> list[str]:
    """Return, in words, why TensorFlow has no wheel for such a host; [] if it has one."""
    found = []
    pythons, named = pythons_of(tensorflow), f"TensorFlow {tensorflow}"
    if not pythons:
        releases = [*TENSORFLOW_RELEASES]
        return [f"{named} is no version that psfleet installs, which are {releases[0]} to {releases[-1]}"]
    if device not in DEVICES:
        found.append(f"{device!r} is no device of an environment; expected {', '.join(DEVICES)}")
    if python not in pythons:
        found.append(f"{named} has no wheel for Python {python}, only for {pythons[0]} to {pythons[-1]}")
    if machine not in MACHINES:
        found.append(f"{named} has no wheel for {machine}, only for {' and '.join(MACHINES)}")
    elif device in DEVICES[1:] and machine != MACHINES[0]:
        found.append(f"{named} has no GPU wheel for {machine}, only for {MACHINES[0]}")
    if device == "gpu" and release_of(tensorflow) in WITHOUT_CUDA_WHEELS:
        found.append(f"{named} brings no CUDA: set nvidia_cuda_source: system, or take 2.14 or newer")
    return found
