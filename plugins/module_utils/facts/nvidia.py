"""Reads facts about NVIDIA's hardware and driver: devices on the bus, driver, GPUs, device nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..host.whole_files import text_of
from .host_facts import find_program, run_program

VENDOR = "0x10de"
DISPLAY_CLASS = "0x03"  # PCI's class of VGA, 3D and other display controllers
FIELDS = ("index", "name", "uuid", "compute_cap", "driver_version")
MIG_FIELD, FABRIC_FIELD = "mig.mode.current", "fabric.state"
# Fields that a driver may lack: driver 470 lacks the capability, older drivers lack MIG, most drivers lack
# the fabric.
OPTIONAL_FIELDS = ("compute_cap", MIG_FIELD, FABRIC_FIELD)
# Without nvidia-persistenced, nvidia-smi wakes each GPU first, which takes seconds for each GPU.
SMI_SECONDS = 60.0
# If the infoROM of a GPU is corrupted, nvidia-smi warns and ends with this status; the GPU still computes.
WARNED, WARNING = 14, "WARNING:"

_VERSION = re.compile(r"NVRM version:.*?\sModule\s+(?:for\s+\S+\s+)?(?P<version>[0-9][0-9.]*)")
_UNKNOWN_FIELD = re.compile(r'Field "(?P<field>[^"]+)" is not a valid field to query')
_CAPABILITY = re.compile(r"(?P<major>[0-9]+)\.(?P<minor>[0-9]+)")
# nvidia-current.ko and nvidia-tesla-535.ko are Debian's. Other modules named nvidia* are not the driver.
_MODULE = re.compile(r"nvidia(-current|-tesla)?(-[0-9]+)?(-open)?\.ko(\.(xz|gz|zst))?")
_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@dataclass(frozen=True)
class Gpu:
    """A GPU as nvidia-smi lists it.

    - `index`: its number as nvidia-smi counts. `driver`: the driver's version, such as "550.54.15".
    - `compute_capability`: like (9, 0), None if the driver does not report it.
    - `mig`: whether the GPU is split into MIG devices, which CUDA numbers differently than nvidia-smi.
    - `fabric`: its state in a fabric of NVSwitches, such as "Completed"; "" if it is in none, or if unknown.
    """

    index: int
    name: str
    compute_capability: tuple[int, int] | None
    driver: str
    mig: bool = False
    fabric: str = ""


@dataclass(frozen=True)
class GpuFacts:
    """The facts about a host's NVIDIA hardware and driver.

    - `bus`: PCI addresses of NVIDIA's display and 3D controllers. `bus_drivers`: the driver of each, "" for
      none.
    - `driver`: version of the loaded kernel module, "" if none is loaded.
    - `smi`: why nvidia-smi failed, "" if it did not. `gpus`: the GPUs that it listed, () if it failed.
    - `nodes`: paths of NVIDIA's device nodes, such as "/dev/nvidia0". `nvidia_modprobe`: whether the program
      that makes the nodes is installed.
    - `secure_boot`: whether Secure Boot is on, None if unknown.
    - `kernel`: the release of the running kernel. `module_kernels`: the releases of the kernels that have a
      module of NVIDIA's driver.
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
    """Return the facts of this host, or of a copy of a host's files below `root`.

    nvidia-smi runs first, because it loads the driver and makes its device nodes.
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
    """Return the GPUs in the output of `nvidia-smi --query-gpu=FIELDS --format=csv,noheader,nounits`.

    They have the output's order. Lines that begin with "WARNING:" are ignored. Raises ValueError with
    nvidia-smi's words if there is no GPU, or if the line of a GPU is not complete, because it does not
    answer.
    """
    printed = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in printed if not line.startswith(WARNING)]
    if not lines:
        raise ValueError("; ".join(printed) or "nvidia-smi listed no GPU")
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
    """Return the driver's version in the text of /proc/driver/nvidia/version; "" if there is none."""
    match = _VERSION.search(text)
    return match["version"] if match else ""


def _ask_smi(root: Path) -> tuple[tuple[Gpu, ...], str]:
    """Run nvidia-smi; return (the GPUs, ""), or ((), in words why it did not list them)."""
    program = find_program(root, "nvidia-smi")
    if program is None:
        return (), "nvidia-smi is not installed"
    fields = [*FIELDS, MIG_FIELD, FABRIC_FIELD]
    while True:
        command = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        status, *printed = run_program(command, SMI_SECONDS)
        text = "\n".join(printed)  # nvidia-smi may print errors to either stream
        unknown = _UNKNOWN_FIELD.search(text)
        if unknown is None or unknown["field"] not in set(fields) & set(OPTIONAL_FIELDS):
            break
        fields.remove(unknown["field"])
    words = "; ".join(line.strip() for line in text.splitlines() if line.strip())
    if status not in {0, WARNED}:
        return (), words or f"nvidia-smi ended with exit status {status}"
    try:
        return parse_smi(text, fields), ""
    except ValueError as error:
        return (), str(error)


def _secure_boot(root: Path) -> bool | None:
    if not (root / "sys/firmware/efi").is_dir():
        return False
    try:
        # The file has four bytes of attributes, and then the value.
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
