"""The requirements.txt of a program: what its lines require, and which TensorFlow the program gets."""

import hashlib
from pathlib import Path

import pytest

from plugins.module_utils.environments.environment import SUPPORTED_PYTHONS, TENSORFLOW_VERSION
from psfleet.inventory.program_requirements import ProgramRequirements, RequirementsError, logical_lines
from tests.psfleet.carry.made_wheels import make_package


def read(folder: Path, text: str) -> ProgramRequirements:
    (folder / "requirements.txt").write_text(text)
    return ProgramRequirements.read(folder / "requirements.txt")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("-r other.txt", "the option -r"),
        ("--index-url=https://example.org", "the option --index-url"),
        ("-e .", "the option -e"),
        ("./folder", "a path or a URL"),
        ("plots-1.0-py3-none-any.whl", "a path or a URL"),
        ("git+https://example.org/x.git", "a path or a URL"),
        ("plots @ https://example.org/plots-1.0-py3-none-any.whl", "a path or a URL"),
        ("plots @ https://example.org/x", "a URL"),
        ("plots=1.0", "Expected"),
        ("./plots.whl", "Invalid wheel filename"),
        ("../x/plots-1.0-py3-none-any.whl", "cannot be read (No such file or directory)"),
    ],
)
def test_a_line_that_names_no_package_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(RequirementsError, match="line 3 is") as error:
        read(tmp_path, f"# mine\nplots\n{line}\n")
    assert all(word in str(error.value) for word in (line, problem))


@pytest.mark.parametrize(
    ("lines", "version", "pythons"),
    [
        ("pandas", TENSORFLOW_VERSION, SUPPORTED_PYTHONS),
        ("tensorflow", TENSORFLOW_VERSION, SUPPORTED_PYTHONS),
        ("tensorflow>=2.12", TENSORFLOW_VERSION, SUPPORTED_PYTHONS),
        ("tensorflow-cpu==2.15.1", "2.15.1", ("3.10", "3.11")),
        ("tensorflow[and-cuda]==2.15.0", "2.15.0", ("3.10", "3.11")),
        ("tensorflow<2.16", "2.15.1", ("3.10", "3.11")),
        ("tensorflow_cpu~=2.16.0", "2.16.2", ("3.10", "3.11", "3.12")),
        ("tensorflow>=2.14\ntensorflow-cpu<2.20", "2.19.1", ("3.10", "3.11", "3.12")),
        ("tensorflow==2.12.*", "2.12.1", ("3.10", "3.11")),
    ],
)
def test_a_program_gets_the_tensorflow_that_it_names(
    tmp_path: Path, lines: str, version: str, pythons: tuple[str, ...]
) -> None:
    requirements = read(tmp_path, f"{lines}\n")
    assert (requirements.tensorflow, requirements.pythons) == (version, pythons)


@pytest.mark.parametrize(
    "lines",
    ["tensorflow==2.11.0", "tensorflow==1.15.5", "tensorflow>=2.22", "tensorflow<2.14\ntensorflow>2.15"],
)
def test_a_tensorflow_that_psfleet_does_not_install_is_refused(tmp_path: Path, lines: str) -> None:
    with pytest.raises(RequirementsError, match=r"requires TensorFlow .*; psfleet installs 2\.12 to"):
        read(tmp_path, f"{lines}\n")


def test_a_wheel_of_the_users_own_decides_version_and_pythons(tmp_path: Path) -> None:
    digest = make_package(tmp_path, "tensorflow", "2.15.0+sm120", tag="cp312-cp312-linux_x86_64")
    line = "./tensorflow-2.15.0+sm120-cp312-cp312-linux_x86_64.whl"
    requirements = read(tmp_path, f"{line}  # of our own\n")
    assert (requirements.tensorflow, requirements.pythons) == ("2.15.0+sm120", ("3.12",))
    (package,) = requirements.packages
    assert (str(package.requirement), {*package.hashes}) == ("tensorflow==2.15.0+sm120", {digest})
    assert requirements.wheels == {"tensorflow": tmp_path / line}
    assert read(tmp_path, f"{line} --hash=sha256:{digest}\n") == requirements
    with pytest.raises(RequirementsError, match=f"its sha256 is {digest}"):
        read(tmp_path, f"{line} --hash=sha256:{'0' * 64}\n")
    make_package(tmp_path, "ops", tag="cp313-cp313-linux_x86_64")
    with pytest.raises(RequirementsError, match=r"TensorFlow 2\.15\.1 is for .*, and ops==1\.0 for others"):
        read(tmp_path, "tensorflow==2.15.1\n./ops-1.0-cp313-cp313-linux_x86_64.whl\n")


@pytest.mark.parametrize(
    ("tag", "pythons"),
    [
        ("py3-none-any", SUPPORTED_PYTHONS),
        ("py2.py3-none-any", SUPPORTED_PYTHONS),
        ("cp39-abi3-manylinux_2_17_x86_64", SUPPORTED_PYTHONS),
        ("cp312-abi3-linux_x86_64", ("3.12", "3.13")),
        ("cp310.cp313-none-linux_x86_64", ("3.10", "3.13")),
    ],
)
def test_a_wheel_is_for_the_pythons_in_its_name(tmp_path: Path, tag: str, pythons: tuple[str, ...]) -> None:
    make_package(tmp_path, "ops", tag=tag)
    assert read(tmp_path, f"./ops-1.0-{tag}.whl\n").pythons == pythons


def test_equal_requirements_have_one_key(tmp_path: Path) -> None:
    one = read(tmp_path, "pandas==2.0\nnumpy # the older one\n")
    assert one.key == read(tmp_path, "numpy\n\npandas == 2.0\n").key
    assert one.key != read(tmp_path, "pandas==2.0\n").key
    digest = hashlib.sha256(b"").hexdigest()
    assert one.key != read(tmp_path, f"pandas==2.0 --hash=sha256:{digest}\nnumpy\n").key


def test_lines_are_joined_and_keep_their_number() -> None:
    text = "# a\n\nb==1 \\\n  --hash=x\nc#d\ne # f"
    assert list(logical_lines(text)) == [(3, "b==1    --hash=x"), (5, "c#d"), (6, "e")]
