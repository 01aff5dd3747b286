"""Wheels by their names and hashes, and the archive that contains them."""

import hashlib
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from packaging.utils import parse_wheel_filename

from plugins.module_utils.environments.environment import MACHINES, SUPPORTED_PYTHONS, HostEnvironment
from psfleet.carry.locks import PinnedPackage
from psfleet.carry.wheel_archive import SPARE_BYTES, installed_bytes, pack
from psfleet.carry.wheels import (
    best_wheels,
    download_command,
    platforms,
    require_one_tensorflow,
    supported_tags,
)
from tests.psfleet.carry.made_wheels import make_package, make_wheel

# File names as on PyPI.
GRPCIO = [
    "grpcio-1.85.1-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    "grpcio-1.85.1-cp311-cp311-manylinux2014_aarch64.manylinux_2_17_aarch64.whl",
    "grpcio-1.85.1-cp313-cp313-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    "grpcio-1.85.1-cp311-cp311-musllinux_1_2_x86_64.whl",
    "grpcio-1.85.0-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    "grpcio-1.85.1.tar.gz.whl",
]
OTHERS = [
    "uv-0.13.8-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "uv-0.13.8-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl",
    "protobuf-7.36.2-cp310-abi3-manylinux2014_x86_64.whl",
    "protobuf-7.36.2-py3-none-any.whl",
    "nvidia_cuda_nvcc_cu12-12.9.86-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl",
    "new-1.0-py3-none-manylinux_2_39_x86_64.whl",
]
VERSIONS = {
    "grpcio": "1.85.1",
    "uv": "0.13.8",
    "protobuf": "7.36.2",
    "nvidia-cuda-nvcc-cu12": "12.9.86",
    "new": "1.0",
}


@pytest.mark.parametrize(
    ("environment", "chosen"),
    [
        ("gpu-python3.11-x86_64", {GRPCIO[0], OTHERS[0], OTHERS[2], OTHERS[4]}),
        ("cpu-python3.11-aarch64", {GRPCIO[1], OTHERS[1], OTHERS[3]}),
        ("cpu-python3.13-x86_64", {GRPCIO[2], OTHERS[0], OTHERS[2], OTHERS[4]}),
        ("cpu-python3.12-aarch64", {OTHERS[1], OTHERS[3]}),
    ],
)
def test_the_best_wheels_that_a_host_can_install_are_chosen(environment: str, chosen: set[str]) -> None:
    packages = {name: PinnedPackage(name, version, frozenset()) for name, version in VERSIONS.items()}
    for order in (GRPCIO + OTHERS, [*reversed(OTHERS), *reversed(GRPCIO)]):
        wheels = [Path("/pool", name) for name in order]
        found = best_wheels(wheels, packages, HostEnvironment.parse(environment))
        assert {wheel.name for wheel in found} == chosen


@pytest.mark.parametrize("machine", MACHINES)
def test_uv_installs_every_wheel_that_counts_as_supported(machine: str, tmp_path: Path) -> None:
    """Let the real uv resolve from a folder that has one wheel of each package, tagged with a platform."""
    oldest, older = {"x86_64": (5, ["2014", "2010", "1"]), "aarch64": (17, ["2014"])}[machine]
    known = [f"_2_{minor}" for minor in range(28, oldest - 1, -1)] + older
    assert platforms(machine) == [f"manylinux{each}_{machine}" for each in known]
    wheels = tmp_path / "wheels"
    names = [f"of_{platform}-1.0-cp312-cp312-{platform}.whl" for platform in platforms(machine)]
    for platform in platforms(machine):
        make_package(wheels, f"of_{platform}", tag=f"cp312-cp312-{platform}")
    command = [str(Path(sys.executable).parent / "uv"), "pip", "compile", "--quiet", "--no-index"]
    command += [f"--find-links={wheels}", f"--python={sys.executable}", "--python-version=3.12", "--offline"]
    command += [f"--python-platform={machine}-manylinux_2_28", "--no-header", "--no-annotate", "-"]
    asked = "".join(f"{name.split('-')[0]}==1.0\n" for name in names)
    subprocess.run(command, input=asked, text=True, check=True)
    ranks = supported_tags(HostEnvironment("cpu", "3.12", machine))
    assert all(parse_wheel_filename(name)[3] <= set(ranks) for name in names)


def test_pip_downloads_wheels_for_the_host_and_not_for_this_machine(tmp_path: Path) -> None:
    for python in SUPPORTED_PYTHONS:
        command = download_command(HostEnvironment("cpu", python, "aarch64"), tmp_path / "x.txt", tmp_path)
        assert {f"--python-version={python}", "--platform=manylinux2014_aarch64"} <= set(command)
        abis = [f"--abi=cp{python.replace('.', '')}", "--abi=abi3", "--abi=none"]
        assert {*abis, f"--cache-dir={tmp_path.parent / 'cache'}"} <= set(command)
        assert not [option for option in command if option.endswith("x86_64")]


def test_a_package_that_replaces_tensorflow_is_refused(tmp_path: Path) -> None:
    make_wheel(tmp_path, "tf_nightly-2.22-cp311-none-any.whl", {"tensorflow/__init__.py": b""})
    with pytest.raises(ValueError, match="asks for tf-nightly, which is TensorFlow under another name"):
        require_one_tensorflow(tmp_path, {"tensorflow"})
    require_one_tensorflow(tmp_path, {"tf-nightly"})


def test_an_archive_contains_the_wheels_the_lock_and_the_installer_and_has_the_returned_hash(
    tmp_path: Path,
) -> None:
    make_wheel(tmp_path / "wheels", "Some_Package-1.0-py3-none-any.whl", {"big.bin": b"0" * 3_000_000})
    make_wheel(tmp_path / "wheels", "uv-1.0-py3-none-any.whl", {"uv-1.0.data/scripts/uv": b"\x7fELF"})
    digest = pack(tmp_path / "wheels", "some-package==1.0\n", tmp_path / "x.tar")
    assert digest == hashlib.sha256((tmp_path / "x.tar").read_bytes()).hexdigest()
    with tarfile.open(tmp_path / "x.tar") as stream:
        members = {member.name: member for member in stream}
        lock = stream.extractfile("requirements.txt")
        assert lock is not None
        assert lock.read() == b"some-package==1.0\n"
    assert sorted(members) == ["requirements.txt", "uv", "wheels/Some_Package-1.0-py3-none-any.whl"]
    assert {name: member.mode for name, member in members.items() if member.mode != 0o644} == {"uv": 0o755}
    assert {(of.uid, of.gid, of.mtime, of.uname, of.gname) for of in members.values()} == {
        (0, 0, 0, "root", "root")
    }


def test_installed_bytes_include_byte_code_and_disk_blocks(tmp_path: Path) -> None:
    make_wheel(tmp_path, "a-1.0-py3-none-any.whl", {"big.bin": b"0" * 5000, "a.py": b"#" * 1000})
    make_wheel(tmp_path, "b-1.0-py3-none-any.whl", {"b.so": b"0" * 100})
    assert installed_bytes(tmp_path.iterdir()) - SPARE_BYTES == 6100 + 1500 + 3 * 4096
