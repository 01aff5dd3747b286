"""Copies of hosts below a folder: what the kernel shows of a GPU, and an nvidia-smi of recorded answers."""

import shlex
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded_gpus"
KERNEL = "6.1.0-56-amd64"
UUID = "GPU-00000000-0000-0000-0000-000000000000"


def recorded(file: str) -> str:
    """Return what somebody's machine printed."""
    return (RECORDED / file).read_text(encoding="utf-8")


def smi_that_says(file: str, status: int = 0) -> str:
    """Return a program that prints a recorded answer and ends with this exit status."""
    return f"#!/bin/sh\ncat {shlex.quote(str(RECORDED / file))}\nexit {status}\n"


def write(file: Path, content: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, encoding="utf-8")


def make_host(root: Path, *, smi: str = "") -> None:
    """Make a host with one H200 and a driver that is loaded; without `smi` it has no nvidia-smi."""
    device = root / "sys/bus/pci/devices/0000:83:00.0"
    write(device / "vendor", "0x10de\n")
    write(device / "class", "0x030200\n")
    (root / "sys/bus/pci/drivers/nvidia").mkdir(parents=True)
    (device / "driver").symlink_to("../../drivers/nvidia")
    write(root / "proc/driver/nvidia/version", recorded("version-580-proprietary.txt"))
    write(root / "proc/sys/kernel/osrelease", f"{KERNEL}\n")
    write(root / f"lib/modules/{KERNEL}/updates/dkms/nvidia-current.ko", "")
    for node in ("nvidia0", "nvidiactl", "nvidia-uvm", "null"):
        write(root / "dev" / node, "")
    if smi:
        write(root / "usr/bin/nvidia-smi", smi)
        (root / "usr/bin/nvidia-smi").chmod(0o755)
