"""What a host has of NVIDIA's: devices on the bus, driver, GPUs as nvidia-smi counts them, device nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """A GPU as nvidia-smi lists it.

    `index` is nvidia-smi's number, `memory_mib` 0 where it is not told, `compute_capability` such as (9, 0),
    None where the driver does not tell it, `driver` its version, such as "550.54.15". `mig` says that the
    GPU is cut into MIG devices, so that CUDA does not count it as nvidia-smi does.
    """

    index: int
    name: str
    uuid: str
    memory_mib: int
    compute_capability: tuple[int, int] | None
    driver: str
    mig: bool = False

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Gpu:
        """Return the GPU that `asdict` described; raises TypeError where a field is missing."""
        capability = content.get("compute_capability")
        return cls(**{**content, "compute_capability": None if capability is None else tuple(capability)})


@dataclass(frozen=True)
class GpuFacts:
    """What a host has of NVIDIA's, as far as a program can tell.

    `bus`: PCI addresses of NVIDIA's display and 3D controllers. `bus_drivers`: the driver of each of them, ""
    for none. `driver`: version of the loaded kernel module, "" where none is. `smi`: why nvidia-smi did not
    answer, "" where it did. `gpus`: what it listed. `character_devices`: NVIDIA's names in /proc/devices.
    `nodes`: paths below /dev. `secure_boot`: None where the firmware does not tell. `kernel`: the one that
    runs. `module_kernels`: the kernels for which a module of NVIDIA's is installed.
    """

    bus: tuple[str, ...] = ()
    bus_drivers: tuple[str, ...] = ()
    driver: str = ""
    smi: str = ""
    gpus: tuple[Gpu, ...] = ()
    character_devices: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    secure_boot: bool | None = None
    kernel: str = ""
    module_kernels: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the facts as a module's answer holds them."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> GpuFacts:
        """Return the facts that `to_json` described; raises TypeError where a name is unknown."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
        }
        return cls(**{**values, "gpus": tuple(Gpu.from_json(gpu) for gpu in content.get("gpus", ()))})
