import re

import pytest

from plugins.module_utils.environments.environment import (
    SUPPORTED_PYTHONS,
    TENSORFLOW_VERSION,
    HostEnvironment,
    every_environment,
    problems,
    pythons_of,
)


@pytest.mark.parametrize(
    "name", ["", "python3.11", "cpu-python3.11", "cpu-python-x86_64", "CPU-python3.11-x86_64"]
)
def test_an_invalid_environment_name_is_refused_with_an_example(name: str) -> None:
    with pytest.raises(ValueError, match=r"is no environment; expected one such as cpu-python3\.11-x86_64"):
        HostEnvironment.parse(name)


def test_all_reasons_against_an_environment_are_reported_at_once() -> None:
    python = "TensorFlow 2.21.0 has no wheel for Python 3.14, only for 3.10 to 3.13"
    gpu = "TensorFlow 2.21.0 has no GPU wheel for aarch64, only for x86_64"
    machine = "TensorFlow 2.21.0 has no wheel for riscv64, only for x86_64 and aarch64"
    device = "'tpu' is no device of an environment; expected cpu, gpu, gpu-system"
    assert problems("tpu", "3.14", "riscv64") == [device, python, machine]
    assert problems("gpu-system", "3.10", "aarch64") == problems("gpu", "3.13", "aarch64") == [gpu]
    with pytest.raises(ValueError, match=f"^{re.escape(python)}; {gpu}$"):
        HostEnvironment("gpu", "3.14", "aarch64")


def test_every_environment_lists_each_combination_once() -> None:
    names = [environment.name for environment in every_environment()]
    assert len(set(names)) == len(names) == 4 * len(("cpu", "cpu on aarch64", "gpu", "gpu-system"))
    assert {"cpu-python3.10-aarch64", "gpu-system-python3.13-x86_64"} < set(names)


@pytest.mark.parametrize(
    ("name", "locks"),
    [
        ("cpu-python3.11-x86_64", ("python3.11.txt", "tensorflow-cpu.txt")),
        ("cpu-python3.12-aarch64", ("python3.12.txt", "tensorflow.txt")),
        ("gpu-python3.13-x86_64", ("python3.13.txt", "tensorflow.txt", "cuda.txt")),
        ("gpu-system-python3.10-x86_64", ("python3.10.txt", "tensorflow.txt")),
    ],
)
def test_only_an_environment_with_its_own_cuda_uses_the_lock_of_cuda(
    name: str, locks: tuple[str, ...]
) -> None:
    environment = HostEnvironment.parse(name)
    assert (environment.name, environment.locks) == (name, locks)


def test_an_environment_with_another_tensorflow_has_its_version_in_its_name() -> None:
    environment = HostEnvironment.parse("gpu-python3.11-x86_64-tensorflow2.15.0+sm120")
    assert environment == HostEnvironment("gpu", "3.11", "x86_64", "2.15.0+sm120")
    assert environment.name == "gpu-python3.11-x86_64-tensorflow2.15.0+sm120"
    assert HostEnvironment("cpu", "3.11", "x86_64", TENSORFLOW_VERSION).name == "cpu-python3.11-x86_64"


def test_a_release_has_its_own_pythons() -> None:
    assert pythons_of("2.15.1") == ("3.10", "3.11")
    assert pythons_of("2.15.1+ours") == pythons_of(TENSORFLOW_VERSION) == SUPPORTED_PYTHONS
    assert pythons_of("2.11.0") == pythons_of("2.11.0+ours") == ()
    assert problems("cpu", "3.12", "x86_64", "2.15.1") == [
        "TensorFlow 2.15.1 has no wheel for Python 3.12, only for 3.10 to 3.11"
    ]
    assert problems("cpu", "3.11", "x86_64", "1.15") == [
        "TensorFlow 1.15 is no version that psfleet installs, which are 2.12 to 2.21"
    ]
    assert problems("gpu-system", "3.11", "x86_64", "2.13.1") == []
    (problem,) = problems("gpu", "3.11", "x86_64", "2.13.1")
    assert problem.startswith(
        "TensorFlow 2.13.1 brings no CUDA: set nvidia_cuda_source: system, or take 2.14"
    )
