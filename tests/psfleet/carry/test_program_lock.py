"""A program's requirements, resolved by the real uv from an index of wheels made here."""

import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from plugins.module_utils.environments.environment import HostEnvironment
from psfleet.carry.locks import read_locks
from psfleet.carry.program_lock import VARIABLE, ProgramLock, logical_lines
from psfleet.carry.wheel_stores import WheelStore
from tests.psfleet.carry.made_wheels import make_package

CPU = HostEnvironment("cpu", "3.11", "x86_64")
GPU = HostEnvironment("gpu", "3.11", "x86_64")
ZEROS = "0" * 64


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of wheels, which is all that uv may find."""
    folder = tmp_path / "index"
    folder.mkdir()
    for version in ("2.21.0", "2.22.0"):
        make_package(folder, "tensorflow", version, ["numpy", 'nvidia-nccl-cu12; extra == "and-cuda"'])
    for version in ("1.0", "2.4"):
        make_package(folder, "numpy", version)
    make_package(folder, "layers", "3.0", ["tensorflow>=2.20"])
    make_package(folder, "plots", "1.0", ["numpy>=2"])
    (folder / "onlysource-1.0.tar.gz").write_bytes(b"")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "an index without packages").as_uri())
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def program_lock(
    folder: Path, environment: HostEnvironment, tensorflow: str = "tensorflow-cpu"
) -> ProgramLock:
    """Return a lock for the requirements.txt in `folder`, beside those of an environment."""
    python, wheel = folder / "python.txt", folder / f"{tensorflow}.txt"
    python.write_text(f"numpy==2.4 --hash=sha256:{ZEROS}\n")
    wheel.write_text(f"{tensorflow}==2.21.0 --hash=sha256:{ZEROS}\n")
    return ProgramLock(folder / "requirements.txt", (python, wheel), environment, folder / "cache")


@pytest.fixture
def lock(index: Path, tmp_path: Path) -> ProgramLock:
    assert index.is_dir()
    return program_lock(tmp_path, CPU)


def deployed(lock: ProgramLock) -> Path:
    """Return the path of the lock as a deployment has it."""
    return lock.resolve(lambda _: None, keep=True)


def resolved(lock: ProgramLock, text: str) -> dict[str, str]:
    lock.requirements.write_text(text)
    return {package.name: package.version for package in read_locks([deployed(lock)]).values()}


def test_only_packages_that_the_base_lacks_are_added(lock: ProgramLock) -> None:
    assert resolved(lock, "plots  # draws\nnumpy\n") == {"plots": "1.0"}
    assert resolved(lock, "numpy>=2\n") == {}


def test_a_requirement_of_tensorflow_is_met_by_tensorflow_cpu_of_the_base(lock: ProgramLock) -> None:
    assert resolved(lock, "tensorflow>=2.16\nlayers\n") == {"layers": "3.0"}


@pytest.mark.parametrize("line", ["numpy<2", "tensorflow==2.22.0"])
def test_a_conflict_with_a_pin_is_refused_with_the_message_of_uv(lock: ProgramLock, line: str) -> None:
    with pytest.raises(ValueError, match="unsatisfiable") as error:
        resolved(lock, f"{line}\n")
    words = ["trainer_program_requirements", str(lock.requirements), "psfleet pins", f"you require {line}"]
    words += ["for cpu-python3.11-x86_64", *(str(path) for path in lock.base)]
    assert all(word in str(error.value) for word in words)
    assert not lock.path.exists()


def test_files_of_several_programs_are_resolved_together(lock: ProgramLock, tmp_path: Path) -> None:
    other = tmp_path / "clicks.txt"
    other.write_text("layers\n")
    both = replace(lock, others=(other,))
    assert resolved(both, "plots\n") == {"layers": "3.0", "plots": "1.0"}
    assert (both.path, both.is_current, lock.is_current) == (lock.path, True, False)
    other.write_text("plots\n")
    assert not both.is_current
    other.write_text("onlysource\n")
    with pytest.raises(ValueError, match=f"{lock.requirements} and {other} cannot be resolved for"):
        deployed(both)
    other.write_text("plots\n-e .\n")
    with pytest.raises(ValueError, match=f"{other}, line 2: '-e .' is refused"):
        deployed(both)


def test_contradicting_requirements_are_refused_with_the_message_of_uv(
    lock: ProgramLock, tmp_path: Path
) -> None:
    other = tmp_path / "clicks.txt"
    other.write_text("plots==1.0\n")
    with pytest.raises(ValueError, match="unsatisfiable") as error:
        resolved(replace(lock, others=(other,)), "plots>1\n")
    words = [f"{lock.requirements} and {other} cannot be resolved for", "plots==1.0", "plots>1"]
    assert all(word in str(error.value) for word in words)
    assert not lock.path.exists()


def test_a_package_without_a_wheel_is_refused_with_its_name(lock: ProgramLock) -> None:
    with pytest.raises(ValueError, match="onlysource"):
        resolved(lock, "onlysource\n")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("-r other.txt", "the option -r"),
        ("--index-url=https://example.org", "the option --index-url"),
        ("-e .", "the option -e"),
        ("./folder", "a path or a URL"),
        ("../x/plots-1.0-py3-none-any.whl", "a path or a URL"),
        ("git+https://example.org/x.git", "a path or a URL"),
        ("plots @ https://example.org/plots-1.0-py3-none-any.whl", "a path or a URL"),
        ("plots @ https://example.org/x", "a URL"),
        ("plots=1.0", "Expected"),
    ],
)
def test_a_line_that_names_no_package_is_refused(lock: ProgramLock, line: str, problem: str) -> None:
    with pytest.raises(ValueError, match="is refused") as error:
        resolved(lock, f"# mine\nplots\n{line}\n")
    assert all(word in str(error.value) for word in (f"{lock.requirements}, line 3", line, problem))


def test_an_index_that_does_not_answer_is_named_instead_of_the_requirements(
    lock: ProgramLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:9/simple/absent") as error:
        resolved(lock, "absent\n")
    assert "pip config list" in str(error.value)
    assert "Edit" not in str(error.value)


def test_a_later_deployment_installs_the_versions_of_the_lock_in_git(lock: ProgramLock, index: Path) -> None:
    assert resolved(lock, "plots\n") == {"plots": "1.0"}
    assert lock.path == lock.requirements.parent / "requirements.cpu-python3.11-x86_64.psfleet.lock"
    assert lock.path.read_text().partition("\n")[0].endswith(f"from {lock.key}. Keep this file in git.")
    make_package(index, "plots", "2.0")
    said: list[str] = []
    elsewhere = replace(lock, cache=index / "cache of another machine")
    assert elsewhere.resolve(said.append, keep=True) == lock.path
    assert resolved(lock, "plots\n") == {"plots": "1.0"}
    assert said == []


def test_changed_requirements_are_resolved_again_and_keep_the_versions_that_fit(
    lock: ProgramLock, index: Path
) -> None:
    assert resolved(lock, "plots\n") == {"plots": "1.0"}
    make_package(index, "plots", "2.0")
    lock.requirements.write_text("plots>=1\nlayers\n")
    assert not lock.is_current
    said: list[str] = []
    lock.resolve(said.append, keep=True)
    assert re.match(f"Resolve {lock.requirements} for {CPU.name} anew: they or psfleet's locks", said[0])
    assert said[1].startswith(f"{lock.path} holds the resolved versions")
    assert resolved(lock, "plots>=1\nlayers\n") == {"plots": "1.0", "layers": "3.0"}
    assert resolved(lock, "plots>=2\n") == {"plots": "2.0"}
    lock.base[0].write_text(f"numpy==2.4 --hash=sha256:{'1' * 64}\n")
    assert not lock.is_current
    make_package(index, "plots", "3.0")
    assert resolved(lock, "plots>=2\n") == {"plots": "2.0"}
    lock.path.unlink()
    assert resolved(lock, "plots>=2\n") == {"plots": "3.0"}


def test_check_mode_writes_no_lock_and_the_next_deployment_resolves_to_the_same_versions(
    lock: ProgramLock, index: Path
) -> None:
    lock.requirements.write_text("plots\n")
    before = sorted(lock.requirements.parent.iterdir())
    checked = lock.resolve(lambda _: None, keep=False)
    assert sorted(lock.requirements.parent.iterdir()) == sorted([*before, lock.cache])
    make_package(index, "plots", "2.0")
    assert lock.resolve(lambda _: None, keep=False) == checked
    text = checked.read_text()
    assert resolved(lock, "plots\n") == {"plots": "1.0"}
    assert lock.path.read_text() == text
    # After the lock was removed, the versions of an earlier check do not count.
    assert lock.resolve(lambda _: None, keep=False) == lock.path
    lock.path.unlink()
    assert resolved(lock, "plots\n") == {"plots": "2.0"}


@pytest.mark.parametrize(
    ("whole", "damaged"),
    [
        ("# Resolved", "<<<<<<< mine\n# Resolved"),
        ("plots==", "<<<<<<< mine\nplots=="),
        ("plots==", "--index-url=https://example.org\nplots=="),
        ("sha256:", "sha256:0"),
        (r" \\\n    --hash=sha256:\w+", ""),
    ],
)
def test_a_damaged_lock_is_refused_and_left_unchanged(lock: ProgramLock, whole: str, damaged: str) -> None:
    assert resolved(lock, "plots\n") == {"plots": "1.0"}
    text = re.sub(whole, damaged, lock.path.read_text(), count=1)
    lock.path.write_text(text)
    with pytest.raises(
        ValueError, match=r"is not as psfleet wrote it.*git checkout .* or remove it"
    ) as error:
        resolved(lock, "plots\n")
    assert str(lock.path) in str(error.value)
    assert lock.path.read_text() == text


def test_a_folder_in_which_no_lock_can_be_written_is_refused_with_advice(lock: ProgramLock) -> None:
    lock.requirements.write_text("plots\n")
    lock.path.with_name(f".{lock.path.name}").mkdir()
    with pytest.raises(ValueError, match=r"cannot be written \(.*\).*Let this user write in") as error:
        deployed(lock)
    assert all(word in str(error.value) for word in (VARIABLE, str(lock.path), str(lock.requirements)))


def test_hashes_of_the_user_narrow_those_of_the_lock(lock: ProgramLock, index: Path) -> None:
    digest = hashlib.sha256((index / "plots-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    assert resolved(lock, f"plots==1.0 \\\n  --hash=sha256:{digest}\n") == {"plots": "1.0"}
    for name in ("plots", "numpy"):
        with pytest.raises(ValueError, match=f"allows {name} only with other hashes"):
            resolved(lock, f"{name} --hash=sha256:{'f' * 64}\n")


def test_the_name_of_the_environment_depends_on_the_added_packages(lock: ProgramLock, tmp_path: Path) -> None:
    (tmp_path / "installer.txt").write_text("uv==1.0\n")
    store = WheelStore(CPU, lock.base, tmp_path / "installer.txt", lock.cache)

    def name_with(text: str) -> str:
        lock.requirements.write_text(text)
        extended = store.program_store(deployed(store.program_lock(lock.requirements)))
        assert extended is None or extended.base == lock.base
        return extended.lock_hash if extended else ""

    assert name_with("numpy\n") == ""
    assert name_with("plots\n") not in ("", store.lock_hash)
    assert name_with("plots\n") == name_with("plots  # is no other package\n")


def test_each_environment_gets_its_own_wheels_and_if_possible_the_versions_of_the_others(
    lock: ProgramLock, index: Path, tmp_path: Path
) -> None:
    make_package(index, "native", "1.0", tag="cp311-cp311-manylinux_2_17_x86_64")
    assert resolved(lock, "native\nplots\n") == {"native": "1.0", "plots": "1.0"}
    make_package(index, "plots", "2.0")
    other = program_lock(tmp_path, HostEnvironment("cpu", "3.12", "aarch64"), "tensorflow")
    with pytest.raises(ValueError, match=r"cannot be resolved for cpu-python3\.12-aarch64") as error:
        deployed(other)
    assert "native" in str(error.value)
    make_package(index, "native", "1.1", tag="cp312-cp312-manylinux_2_28_aarch64")
    assert resolved(other, "native\nplots\n") == {"native": "1.1", "plots": "1.0"}


def test_cuda_packages_of_tensorflow_are_added_only_if_a_gpu_environment_lacks_them(
    index: Path, tmp_path: Path, lock: ProgramLock
) -> None:
    make_package(index, "nvidia_nccl_cu12", "2.32.3")
    assert resolved(lock, "tensorflow[and-cuda]\nplots\n") == {"plots": "1.0"}
    gpu = program_lock(tmp_path, GPU, "tensorflow")
    cuda = tmp_path / "cuda.txt"
    cuda.write_text(f"nvidia-nccl-cu12==2.32.3 --hash=sha256:{ZEROS}\n")
    assert resolved(gpu, "tensorflow[and-cuda]\nplots\n") == {"nvidia-nccl-cu12": "2.32.3", "plots": "1.0"}
    of_its_own = ProgramLock(gpu.requirements, (*gpu.base, cuda), GPU, gpu.cache)
    assert resolved(of_its_own, "tensorflow[and-cuda]\nplots\n") == {"plots": "1.0"}


def test_a_requirement_of_tensorflow_cpu_is_met_by_a_gpu_environment(index: Path, tmp_path: Path) -> None:
    assert index.is_dir()
    gpu = program_lock(tmp_path, GPU, "tensorflow")
    assert resolved(gpu, "tensorflow-cpu>=2.20\n") == {}
    with pytest.raises(ValueError, match="unsatisfiable"):
        resolved(gpu, "tensorflow-cpu==2.22.0\n")


def test_lines_are_joined_and_keep_their_number() -> None:
    text = "# a\n\nb==1 \\\n  --hash=x\nc#d\ne # f"
    assert list(logical_lines(text)) == [(3, "b==1    --hash=x"), (5, "c#d"), (6, "e")]
