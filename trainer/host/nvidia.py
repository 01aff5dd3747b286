"""What a host has of NVIDIA's: devices on the bus, driver, GPUs as nvidia-smi counts them, device nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .host_facts import ask, find_program, text_of

VENDOR = "0x10de"
DISPLAY_CLASS = "0x03"  # of PCI: VGA, 3D and other display controllers
FIELDS = ("index", "name", "uuid", "compute_cap", "driver_version")
MIG_FIELD, FABRIC_FIELD = "mig.mode.current", "fabric.state"
# A driver of 470 does not know the capability; older ones nothing of MIG, and most nothing of a fabric.
OPTIONAL_FIELDS = ("compute_cap", MIG_FIELD, FABRIC_FIELD)
# Without nvidia-persistenced nvidia-smi wakes each GPU first, which takes seconds for each of them.
SMI_SECONDS = 60.0
# Of a GPU whose infoROM is corrupted, which computes all the same: the list, a line that warns, this status.
WARNED, WARNING = 14, "WARNING:"

_VERSION = re.compile(r"NVRM version:.*?\sModule\s+(?:for\s+\S+\s+)?(?P<version>[0-9][0-9.]*)")
_UNKNOWN_FIELD = re.compile(r'Field "(?P<field>[^"]+)" is not a valid field to query')
_CAPABILITY = re.compile(r"(?P<major>[0-9]+)\.(?P<minor>[0-9]+)")
# nvidia-current.ko and nvidia-tesla-535.ko are Debian's. The kernel has others that begin with nvidia.
_MODULE = re.compile(r"nvidia(-current|-tesla)?(-[0-9]+)?(-open)?\.ko(\.(xz|gz|zst))?")
_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@dataclass(frozen=True)
class Gpu:
    """A GPU as nvidia-smi lists it.

    `index` is nvidia-smi's number, `compute_capability` such as (9, 0), None where the driver does not tell
    it, `driver` its version, such as "550.54.15". `mig` says that the GPU is cut into MIG devices, so that
    CUDA does not count it as nvidia-smi does. `fabric` is its state in a fabric of NVSwitches, such as
    "Completed", "" where it is in none.
    """

    index: int
    name: str
    compute_capability: tuple[int, int] | None
    driver: str
    mig: bool = False
    fabric: str = ""


@dataclass(frozen=True)
class GpuFacts:
    """What a host has of NVIDIA's, as far as a program can tell.

    `bus`: PCI addresses of NVIDIA's display and 3D controllers. `bus_drivers`: the driver of each of them, ""
    for none. `driver`: version of the loaded kernel module, "" where none is. `smi`: why nvidia-smi did not
    answer, "" where it did. `gpus`: what it listed. `nodes`: paths below /dev. `secure_boot`: None where the
    firmware does not tell. `kernel`: the one that runs. `module_kernels`: the kernels for which a module of
    NVIDIA's is there. `nvidia_modprobe`: whether the program that makes the nodes is installed.
    """

    bus: tuple[str, ...] = ()
    bus_drivers: tuple[str, ...] = ()
    driver: str = ""
    smi: str = ""
    gpus: tuple[Gpu, ...] = ()
    nodes: tuple[str, ...] = ()
    secure_boot: bool | None = None
    kernel: str = ""
    module_kernels: tuple[str, ...] = ()
    nvidia_modprobe: bool = False


def read_gpu_facts(root: Path = Path("/")) -> GpuFacts:
    """Look at this host, or at the copy of one below `root`.

    Where the driver is installed, nvidia-smi loads it and makes its device nodes, so it is asked first.
    """
    gpus, smi = _ask_smi(root)
    devices = [
        device
        for device in sorted((root / "sys/bus/pci/devices").glob("*"))
        if _line(device / "vendor") == VENDOR and _line(device / "class").startswith(DISPLAY_CLASS)
    ]
    return GpuFacts(
        bus=tuple(device.name for device in devices),
        bus_drivers=tuple(_driver_of(device) for device in devices),
        driver=parse_driver_version(text_of(root / "proc/driver/nvidia/version")),
        smi=smi,
        gpus=gpus,
        nodes=tuple(sorted(f"/dev/{path.name}" for path in (root / "dev").glob("nvidia*"))),
        secure_boot=_secure_boot(root),
        kernel=_line(root / "proc/sys/kernel/osrelease"),
        module_kernels=_module_kernels(root / "lib/modules"),
        nvidia_modprobe=find_program(root, "nvidia-modprobe") is not None,
    )


def parse_smi(text: str, fields: Sequence[str] = FIELDS) -> tuple[Gpu, ...]:
    """Return the GPUs in what `nvidia-smi --query-gpu=FIELDS --format=csv,noheader,nounits` printed.

    Raises ValueError with its words where they are no such list, or where a GPU does not answer.
    """
    told = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in told if not line.startswith(WARNING)]
    if not lines:
        raise ValueError("; ".join(told) or "nvidia-smi listed no GPU")
    return tuple(_gpu(line, fields) for line in lines)


def _gpu(line: str, fields: Sequence[str]) -> Gpu:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(fields):
        raise ValueError(line)
    values = dict(zip(fields, cells))  # noqa: B905 - hosts may run Ansible's modules by Python 3.8
    # A GPU that fell off the bus stays in the list, with words such as [GPU is lost] in its cells.
    if not values["index"].isdigit() or not values["uuid"].startswith("GPU-"):
        raise ValueError(line)
    capability = _CAPABILITY.fullmatch(values.get("compute_cap", ""))
    fabric = values.get(FABRIC_FIELD, "")
    return Gpu(
        index=int(values["index"]),
        name=values["name"],
        compute_capability=(int(capability["major"]), int(capability["minor"])) if capability else None,
        driver=values["driver_version"],
        mig=values.get(MIG_FIELD) == "Enabled",
        fabric="" if fabric.strip("[]") in {"N/A", "Not Supported"} else fabric,
    )


def parse_driver_version(text: str) -> str:
    """Return the driver's version from /proc/driver/nvidia/version, "" where there is none."""
    found = _VERSION.search(text)
    return found["version"] if found else ""


def _ask_smi(root: Path) -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs, or why nvidia-smi did not list them."""
    program = find_program(root, "nvidia-smi")
    if program is None:
        return (), "nvidia-smi is not installed"
    fields = [*FIELDS, MIG_FIELD, FABRIC_FIELD]
    while True:
        command = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        status, *printed = ask(command, SMI_SECONDS)
        said = "\n".join(printed)  # it explains itself on either stream
        unknown = _UNKNOWN_FIELD.search(said)
        if unknown is None or unknown["field"] not in set(fields) & set(OPTIONAL_FIELDS):
            break
        fields.remove(unknown["field"])
    words = "; ".join(line.strip() for line in said.splitlines() if line.strip())
    if status not in {0, WARNED}:
        return (), words or f"nvidia-smi ended with exit status {status}"
    try:
        return parse_smi(said, fields), ""
    except ValueError as error:
        return (), str(error)


def _secure_boot(root: Path) -> bool | None:
    if not (root / "sys/firmware/efi").is_dir():
        return False
    try:
        # Four bytes of attributes, and the value.
        return (root / _SECURE_BOOT).read_bytes()[-1:] == b"\1"
    except OSError:
        return None


def _module_kernels(folder: Path) -> tuple[str, ...]:
    return tuple(
        sorted(
            kernel.name
            for kernel in folder.glob("*")
            if any(_MODULE.fullmatch(file) for _, _, files in os.walk(kernel) for file in files)
        )
    )


def _driver_of(device: Path) -> str:
    link = device / "driver"
    return Path(os.readlink(link)).name if link.is_symlink() else ""  # noqa: PTH115 - Python 3.8 has no other


def _line(file: Path) -> str:
    return text_of(file).strip()
