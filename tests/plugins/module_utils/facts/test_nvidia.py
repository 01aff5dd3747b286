"""NVIDIA facts of a host, from copies of hosts and recorded answers of the driver."""

import os
import re
import time
from pathlib import Path

import pytest

from plugins.module_utils.facts import nvidia
from plugins.module_utils.facts.nvidia import Gpu, GpuFacts, parse_driver_version, parse_smi, read_gpu_facts
from tests.plugins.module_utils.made_gpu_hosts import UUID, make_host, recorded, smi_that_says

RECORDED = Path(__file__).parents[1] / "recorded_gpus"


@pytest.mark.parametrize(
    ("file", "version"),
    [
        ("version-384-proprietary.txt", "384.98"),
        ("version-515-proprietary.txt", "515.76"),
        ("version-525-open.txt", "525.60.11"),
        ("version-565-open.txt", "565.57.01"),
        ("version-580-proprietary.txt", "580.159.04"),
        ("version-jetson.txt", "35.3.1"),
    ],
)
def test_the_version_of_the_driver_is_read_from_both_kinds_of_module(file: str, version: str) -> None:
    assert (parse_driver_version(recorded(file)), parse_driver_version("")) == (version, "")


@pytest.mark.parametrize("file", sorted(path.name for path in RECORDED.glob("smi-nvidia-*.csv")))
def test_a_recorded_list_of_gpus_is_read(file: str) -> None:
    (gpu,) = parse_smi(recorded(file))
    driver = file.removesuffix(".csv").rpartition("-")[2]
    assert (gpu.index, gpu.driver, gpu.mig) == (0, driver, False)
    assert gpu.name.lower().replace(" ", "-") in file
    assert gpu.compute_capability in {(7, 5), (8, 9), (9, 0)}


def test_several_gpus_keep_their_numbers() -> None:
    rows = recorded("smi-nvidia-h200-590.48.01.csv") + recorded("smi-nvidia-l40s-595.80.csv").replace(
        "0,", "1,", 1
    )
    assert [(gpu.index, gpu.name) for gpu in parse_smi(rows)] == [(0, "NVIDIA H200"), (1, "NVIDIA L40S")]


@pytest.mark.parametrize(
    ("told", "fabric"), [("[N/A]", ""), ("N/A", ""), ("[Not Supported]", ""), ("In Progress", "In Progress")]
)
def test_a_gpu_without_a_fabric_has_no_fabric_state(told: str, fabric: str) -> None:
    fields = [*nvidia.FIELDS, nvidia.MIG_FIELD, nvidia.FABRIC_FIELD]
    (gpu,) = parse_smi(f"0, T4, {UUID}, 7.5, 550.54.15, Disabled, {told}\n", fields)
    assert (gpu.mig, gpu.fabric) == (False, fabric)


def test_a_field_that_a_gpu_does_not_report_is_unknown() -> None:
    (gpu,) = parse_smi(f"0, GRID T4-8Q, {UUID}, [N/A], 535.161.08\n")
    assert gpu.compute_capability is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "nvidia-smi listed no GPU"),
        ("No devices were found\n", "No devices were found"),
        ("WARNING: a\n\nWARNING: b\n", "WARNING: a; WARNING: b"),
        (f"0, {UUID}, 1\n", f"0, {UUID}, 1"),
        (*["0, [GPU is lost], [GPU is lost], 9.0, 560.1"] * 2,),
    ],
)
def test_an_invalid_list_of_gpus_is_refused_and_quoted(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        parse_smi(text)


def test_a_host_with_a_gpu_is_read(tmp_path: Path) -> None:
    make_host(tmp_path, smi=smi_that_says("smi-mig-nvidia-h200-580.173.02.csv"))
    (tmp_path / "usr/sbin").mkdir()
    (tmp_path / "usr/sbin/nvidia-modprobe").symlink_to("/bin/sh")
    facts = read_gpu_facts(tmp_path)
    assert facts == GpuFacts(
        bus=("0000:83:00.0",),
        bus_drivers=("nvidia",),
        driver="580.159.04",
        gpus=(Gpu(0, "NVIDIA H200", (9, 0), "580.173.02", mig=True, fabric="Completed"),),
        nodes=("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"),
        secure_boot=False,
        kernel="6.1.0-56-amd64",
        module_kernels=("6.1.0-56-amd64",),
        nvidia_modprobe=True,
    )


def test_a_host_without_a_gpu_has_no_gpu_facts(tmp_path: Path) -> None:
    assert read_gpu_facts(tmp_path) == GpuFacts(smi="nvidia-smi is not installed", secure_boot=False)


def test_a_gpu_is_a_display_controller_of_nvidia(tmp_path: Path) -> None:
    make_host(tmp_path)
    devices = tmp_path / "sys/bus/pci/devices"
    for address, vendor, kind in [
        ("0000:01:00.1", "0x10de", "0x040300"),  # the sound of an NVIDIA card
        ("0000:02:00.0", "0x1002", "0x030000"),  # AMD's
        ("0000:03:00.0", "0x10de", "0x068000"),  # an NVSwitch
        ("0000:04:00.0", "0x10de", "0x030000"),
    ]:
        (devices / address).mkdir()
        (devices / address / "vendor").write_text(f"{vendor}\n")
        (devices / address / "class").write_text(f"{kind}\n")
    facts = read_gpu_facts(tmp_path)
    assert (facts.bus, facts.bus_drivers) == (("0000:04:00.0", "0000:83:00.0"), ("", "nvidia"))


def test_an_old_driver_is_queried_again_without_its_unknown_fields(tmp_path: Path) -> None:
    """Driver 470 has no field compute_cap; the program checks its arguments as the driver's own does."""
    refusal = recorded("smi-error-470-unknown-field.txt").strip()
    other = refusal.replace("compute_cap", "fabric.state")
    make_host(
        tmp_path,
        smi=f'#!/bin/sh\necho "$@" >{tmp_path}/asked\n'
        "case $1 in *compute_cap*) echo '" + refusal + "'; exit 2;; esac\n"
        "case $1 in *fabric.state*) echo '" + other + "'; exit 2;; esac\n"
        f"echo '0, Tesla T4, {UUID}, 470.182.03, [N/A]'\n",
    )
    facts = read_gpu_facts(tmp_path)
    assert facts.gpus == (Gpu(0, "Tesla T4", None, "470.182.03"),)
    assert facts.smi == ""
    asked = "--query-gpu=index,name,uuid,driver_version,mig.mode.current"
    assert (tmp_path / "asked").read_text() == f"{asked} --format=csv,noheader,nounits\n"
    (tmp_path / "usr/bin/nvidia-smi").write_text(f"#!/bin/sh\necho '{refusal}'\nexit 2\n")
    assert read_gpu_facts(tmp_path).smi == refusal, "it refuses what it was not asked for"


@pytest.mark.parametrize(
    ("file", "status"),
    [
        ("no-driver", 9),
        ("550-mismatch", 18),
        ("no-devices", 6),
        ("no-devices", 0),
        ("560-unknown-error", 255),
    ],
)
def test_the_error_of_nvidia_smi_is_kept_in_one_line(tmp_path: Path, file: str, status: int) -> None:
    make_host(tmp_path, smi=smi_that_says(f"smi-error-{file}.txt", status))
    facts = read_gpu_facts(tmp_path)
    said = recorded(f"smi-error-{file}.txt").split("\n")
    assert (facts.smi, facts.gpus) == ("; ".join(line.strip() for line in said if line), ())
    (tmp_path / "usr/bin/nvidia-smi").write_text("#!/bin/sh\nexit 3\n")
    assert read_gpu_facts(tmp_path).smi == "nvidia-smi ended with exit status 3"


def test_a_gpu_with_a_corrupted_inforom_is_accepted(tmp_path: Path) -> None:
    """The line is that of NVIDIA/gpu-operator's issue 20, the status 14 that of nvidia-smi's manual."""
    warning = "WARNING: infoROM is corrupted at gpu 0000:83:00.0"
    line = f"0, Tesla T4, {UUID}, 7.5, 550.54.15, [N/A], [N/A]"
    make_host(tmp_path, smi=f"#!/bin/sh\necho '{line}'\necho '{warning}'\nexit 14\n")
    facts = read_gpu_facts(tmp_path)
    assert (facts.smi, [gpu.name for gpu in facts.gpus]) == ("", ["Tesla T4"])
    make_host(tmp_path / "none", smi=f"#!/bin/sh\necho '{warning}'\nexit 14\n")
    facts = read_gpu_facts(tmp_path / "none")
    assert (facts.smi, facts.gpus) == (warning, ())


def test_an_nvidia_smi_that_hangs_is_abandoned_after_a_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its child keeps the pipe open, like a process that waits in the driver and cannot be killed."""
    make_host(tmp_path, smi="#!/bin/sh\nsleep 20\n")
    monkeypatch.setattr(nvidia, "SMI_SECONDS", 0.2)
    began = time.monotonic()
    facts = read_gpu_facts(tmp_path)
    assert time.monotonic() - began < 5
    assert facts.smi == "nvidia-smi did not answer within 0.2 s"


def test_an_nvidia_smi_that_cannot_be_executed_is_reported(tmp_path: Path) -> None:
    make_host(tmp_path, smi="not a program")
    assert read_gpu_facts(tmp_path).smi == "nvidia-smi cannot be run: Exec format error"


@pytest.mark.parametrize(
    ("value", "state"), [(b"\x06\0\0\0\1", True), (b"\x06\0\0\0\0", False), (None, None)]
)
def test_secure_boot_is_read_from_the_firmware(
    tmp_path: Path, value: bytes | None, state: bool | None
) -> None:
    folder = tmp_path / "sys/firmware/efi/efivars"
    folder.mkdir(parents=True)
    if value:
        (folder / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(value)
    assert read_gpu_facts(tmp_path).secure_boot is state


@pytest.mark.parametrize(
    ("file", "is_driver"),
    [
        ("updates/dkms/nvidia-current.ko", True),
        ("updates/dkms/nvidia-current-open.ko.xz", True),
        ("updates/dkms/nvidia-tesla-535.ko", True),
        ("kernel/nvidia-580srv/nvidia.ko.zst", True),
        ("extra/nvidia.ko", True),
        ("kernel/drivers/video/fbdev/nvidia/nvidiafb.ko", False),
        ("kernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko", False),
    ],
)
def test_kernels_with_a_module_of_the_driver_are_listed(tmp_path: Path, file: str, is_driver: bool) -> None:
    module = tmp_path / "lib/modules/6.1.0-9-amd64" / file
    module.parent.mkdir(parents=True)
    module.touch()
    assert read_gpu_facts(tmp_path).module_kernels == (("6.1.0-9-amd64",) if is_driver else ())


def test_this_machine_is_read_without_an_error() -> None:
    facts = read_gpu_facts()
    assert facts.kernel == os.uname().release
    assert len(facts.bus) == len(facts.bus_drivers)
