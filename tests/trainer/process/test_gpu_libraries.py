"""Libraries opened with the real loader, and the messages for missing ones."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT
from trainer.process.gpu_libraries import (
    DRIVER,
    LIBRARIES,
    Library,
    OpenResult,
    compiler_problem,
    failures,
    open_libraries,
)

C_LIBRARY = Library("libc.so.6", DRIVER)
ABSENT = Library("libpsfleet-absent.so.1", DRIVER)
NOT_THERE = "cannot open shared object file: No such file or directory"


def test_a_library_opens_or_has_the_error_of_the_loader() -> None:
    assert open_libraries([C_LIBRARY, ABSENT]) == [
        OpenResult(C_LIBRARY),
        OpenResult(ABSENT, f"{ABSENT.name}: {NOT_THERE}"),
    ]


def test_an_invalid_library_in_the_library_path_gives_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libcublas.so.12").write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    (opened,) = open_libraries([Library("libcublas.so.12", "cublas")])
    assert opened.error.startswith(f"{tmp_path}/libcublas.so.12: ")


@pytest.mark.parametrize(("package", "opens"), [("cublas", True), ("cusolver", False), (DRIVER, False)])
def test_a_library_of_a_wheel_opens_only_in_packages_that_tensorflow_finds_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, opens: bool
) -> None:
    folder = tmp_path / "nvidia" / package / "lib"
    folder.mkdir(parents=True)
    any_library = next((Path(os.__file__).parent / "lib-dynload").glob("*.so"))
    shutil.copy(any_library, folder / "libpsfleet.so.1")
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
    (opened,) = open_libraries([Library("libpsfleet.so.1", package)])
    assert (opened.error == "") is opens, opened.error


def test_failures_are_grouped_into_driver_needed_and_optional_libraries() -> None:
    errors = {
        "libcuda.so.1": f"libcuda.so.1: {NOT_THERE}",
        "libnvidia-ml.so.1": f"libnvidia-ml.so.1: {NOT_THERE}",
        "libcudnn_engines_runtime_compiled.so.9": f"libcuda.so.1: {NOT_THERE}",
        "libcublas.so.12": "/opt/site/libcublas.so.12: file too short",
        "libcusolver.so.11": "/opt/site/libcublas.so.12: file too short",
        "libnccl.so.2": f"libnccl.so.2: {NOT_THERE}",
    }
    opened = [OpenResult(library, errors.get(library.name, "")) for library in LIBRARIES]
    assert failures(opened) == (
        f"libcuda.so.1, libnvidia-ml.so.1: {NOT_THERE}",
        "/opt/site/libcublas.so.12: file too short",
        f"libnccl.so.2: {NOT_THERE}",
    )
    assert failures([OpenResult(library) for library in LIBRARIES]) == ("", "", "")


def test_many_missing_libraries_are_abbreviated() -> None:
    opened = [OpenResult(library, f"{library.name}: {NOT_THERE}") for library in LIBRARIES]
    _, needed, _ = failures(opened)
    assert needed.startswith("libcudart.so.12, libcublas.so.12, ")
    assert needed.endswith(f" and 11 more: {NOT_THERE}")


def test_the_compiler_of_xla_is_checked_in_its_configured_places(tmp_path: Path) -> None:
    told = {"XLA_FLAGS": f"--xla_gpu_cuda_data_dir={tmp_path} --xla_gpu_autotune_level=0", "PATH": ""}
    compiler, libdevice = tmp_path / "bin/ptxas", tmp_path / "nvvm/libdevice/libdevice.10.bc"
    assert compiler_problem(told) == f"{compiler} is no program that can be run"
    compiler.parent.mkdir()
    compiler.touch(0o755)
    assert compiler_problem(told) == f"{libdevice} is not there"
    libdevice.parent.mkdir(parents=True)
    libdevice.touch()
    assert compiler_problem(told) == ""
    assert "ptxas is not in PATH" in compiler_problem({"PATH": ""})
    assert compiler_problem({"PATH": str(compiler.parent)}) == ""


def test_the_command_opens_all_libraries_and_fails_if_one_is_missing() -> None:
    command = [sys.executable, "-m", "trainer.process.gpu_libraries"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    told = json.loads(ended.stdout)
    assert [library["name"] for library in told["libraries"]] == [library.name for library in LIBRARIES]
    of_the_wheels = [library for library in told["libraries"] if library["package"] != DRIVER]
    lacking = any(library["error"] and "libcuda" not in library["error"] for library in of_the_wheels)
    assert ended.returncode == int(lacking or bool(told["compiler"]))


def test_a_library_that_does_not_open_in_time_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The loader waits for a FIFO that nobody writes to, as for a file server that does not answer.
    os.mkfifo(tmp_path / "libcublas.so.12")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    (opened,) = open_libraries([Library("libcublas.so.12", "cublas")], seconds=0)
    assert opened.error == "libcublas.so.12: not open after 1 s"
