"""A program's requirements, resolved by the real uv from an index of wheels made here."""

import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from plugins.module_utils.environments.environment import HostEnvironment
from psfleet.carry.locks import read_locks, without_comments
from psfleet.carry.program_lock import VARIABLE, ProgramLock
from psfleet.carry.wheel_stores import WheelStore
from psfleet.inventory.program_requirements import ProgramRequirements
from tests.psfleet.carry.made_wheels import make_package

CPU = HostEnvironment("cpu", "3.11", "x86_64")
GPU = HostEnvironment("gpu", "3.11", "x86_64")
ZEROS = "0" * 64


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of wheels, which is all that uv may find."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in ("tensorflow", "tensorflow_cpu"):
        for version in ("2.15.1", "2.21.0", "2.22.0"):
            requires = [
                "numpy<2" if version == "2.15.1" else "numpy",
                'nvidia-nccl-cu12; extra == "and-cuda"',
            ]
            make_package(folder, name, version, requires)
    for version in ("1.0", "2.4"):
        make_package(folder, "numpy", version)
    make_package(folder, "layers", "3.0", ["tensorflow>=2.20"])
    make_package(folder, "plots", "1.0", ["numpy>=2"])
    (folder / "onlysource-1.0.tar.gz").write_bytes(b"")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "an index without packages").as_uri())
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def program_lock(folder: Path, environment: HostEnvironment, text: str = "plots\n") -> ProgramLock:
    """Return a lock for a requirements.txt in `folder`, beside the locks of psfleet's own environment."""
    file, python, wheel = folder / "requirements.txt", folder / "python.txt", folder / "tensorflow.txt"
    file.write_text(text)
    python.write_text(f"numpy==2.4 --hash=sha256:{ZEROS}\n")
    wheel.write_text(f"{environment.tensorflow_package}==2.21.0 --hash=sha256:{ZEROS}\n")
    requirements = ProgramRequirements.read(file)
    own = replace(environment, tensorflow=requirements.tensorflow)
    return ProgramLock(requirements, (python, wheel), own, folder / "cache")


@pytest.fixture
def lock(index: Path, tmp_path: Path) -> ProgramLock:
    assert index.is_dir()
    return program_lock(tmp_path, CPU)


def deployed(lock: ProgramLock) -> Path:
    """Return the path of the lock as a deployment has it."""
    return lock.resolve(lambda _: None, keep=True)


def with_text(lock: ProgramLock, text: str) -> ProgramLock:
    """Return the lock of the same file with another content."""
    lock.file.write_text(text)
    requirements = ProgramRequirements.read(lock.file)
    environment = replace(lock.environment, tensorflow=requirements.tensorflow)
    return replace(lock, requirements=requirements, environment=environment)


def resolved(lock: ProgramLock, text: str) -> dict[str, str]:
    """Return {package: version} of the lock, without TensorFlow and NumPy if they are psfleet's."""
    packages = {
        package.name: package.version for package in read_locks([deployed(with_text(lock, text))]).values()
    }
    own = {"tensorflow": "2.21.0", "tensorflow-cpu": "2.21.0", "numpy": "2.4"}
    return {name: version for name, version in packages.items() if own.get(name) != version}


def test_versions_and_hashes_are_psfleets_own_where_they_fit(lock: ProgramLock, index: Path) -> None:
    make_package(index, "numpy", "2.5")
    assert resolved(lock, "plots  # draws\nnumpy\n") == {"plots": "1.0"}
    packages = read_locks([lock.path])
    assert sorted(packages) == ["numpy", "plots", "tensorflow-cpu"]
    assert packages["numpy"].hashes == packages["tensorflow-cpu"].hashes == {ZEROS}
    assert resolved(lock, "numpy<2\n") == {"numpy": "1.0"}
    assert resolved(lock, "numpy>2.4\n") == {"numpy": "2.5"}


def test_a_requirement_of_tensorflow_is_met_by_tensorflow_cpu(lock: ProgramLock) -> None:
    assert resolved(lock, "tensorflow>=2.16\nlayers\n") == {"layers": "3.0"}
    assert "tensorflow" not in read_locks([lock.path])


def test_a_tensorflow_of_the_programs_own_has_a_lock_of_its_own(lock: ProgramLock, tmp_path: Path) -> None:
    older = with_text(lock, "tensorflow==2.15.1\n")
    packages = read_locks([deployed(older)])
    assert {name: package.version for name, package in packages.items()} == {
        "numpy": "1.0",
        "tensorflow-cpu": "2.15.1",
    }
    assert older.path.name == "requirements.cpu-python3.11-x86_64-tensorflow2.15.1.psfleet.lock"
    (tmp_path / "python.txt").write_text("")  # psfleet's own versions change
    assert (older.is_current, with_text(lock, "plots\n").is_current) == (True, False)
    with pytest.raises(
        ValueError, match=r"with TensorFlow 2\.15\.1, which the program gets unless a line names"
    ):
        deployed(with_text(lock, "tensorflow==2.15.1\nplots\n"))


def test_what_a_release_needs_beside_its_own_requirements_is_a_limit(lock: ProgramLock, index: Path) -> None:
    make_package(index, "tensorflow_cpu", "2.20.0", ["protobuf>=5"])
    for version in ("6.33.0", "7.36.2"):
        make_package(index, "protobuf", version)
    assert resolved(lock, "tensorflow==2.20.0\nprotobuf\n")["protobuf"] == "6.33.0"
    assert resolved(lock, "protobuf\n")["protobuf"] == "7.36.2"


def test_a_wheel_of_the_users_own_is_the_only_one_that_is_permitted(
    lock: ProgramLock, tmp_path: Path
) -> None:
    wheel = "tensorflow-2.15.0+ours-cp311-cp311-linux_x86_64.whl"
    digest = make_package(tmp_path, "tensorflow", "2.15.0+ours", ["numpy"], tag="cp311-cp311-linux_x86_64")
    own = read_locks([deployed(with_text(lock, f"./{wheel}\n"))])
    assert (own["tensorflow"].version, {*own["tensorflow"].hashes}) == ("2.15.0+ours", {digest})
    assert "tensorflow-cpu" not in own
    # A package of the index with the same version does not replace it.
    make_package(tmp_path, "plots", "1.0", tag="cp311-cp311-linux_x86_64")
    text = "./plots-1.0-cp311-cp311-linux_x86_64.whl\n"
    digest = hashlib.sha256((tmp_path / text.strip()).read_bytes()).hexdigest()
    assert read_locks([deployed(with_text(lock, text))])["plots"].hashes == {digest}


def test_contradicting_requirements_are_refused_with_the_message_of_uv(lock: ProgramLock) -> None:
    with pytest.raises(ValueError, match="unsatisfiable") as error:
        resolved(lock, "plots==1.0\nplots>1\n")
    words = [VARIABLE, f"{lock.file} cannot be resolved for cpu-python3.11-x86_64", "plots==1.0", "plots>1"]
    assert all(word in str(error.value) for word in words)
    assert not lock.path.exists()


def test_a_package_without_a_wheel_is_refused_with_its_name(lock: ProgramLock) -> None:
    with pytest.raises(ValueError, match="onlysource"):
        resolved(lock, "onlysource\n")


def test_an_index_that_does_not_answer_is_named_instead_of_the_requirements(
    lock: ProgramLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:9/simple/") as error:
        resolved(lock, "absent\n")
    assert "pip config list" in str(error.value)
    assert "Edit" not in str(error.value)


def test_a_later_deployment_installs_the_versions_of_the_lock_in_git(lock: ProgramLock, index: Path) -> None:
    assert resolved(lock, "plots\n") == {"plots": "1.0"}
    assert lock.path == lock.file.parent / "requirements.cpu-python3.11-x86_64.psfleet.lock"
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
    lock = with_text(lock, "plots>=1\nlayers\n")
    assert not lock.is_current
    said: list[str] = []
    lock.resolve(said.append, keep=True)
    assert re.match(f"Resolve {lock.file} for {CPU.name} anew: they or psfleet's locks", said[0])
    assert said[1].startswith(f"{lock.path} holds the resolved versions")
    assert resolved(lock, "plots>=1\nlayers\n") == {"plots": "1.0", "layers": "3.0"}
    assert resolved(lock, "plots>=2\n") == {"plots": "2.0"}
    lock.preferred[0].write_text(f"numpy==2.4 --hash=sha256:{'1' * 64}\n")
    assert not with_text(lock, "plots>=2\n").is_current
    make_package(index, "plots", "3.0")
    assert resolved(lock, "plots>=2\n") == {"plots": "2.0"}
    lock.path.unlink()
    assert resolved(lock, "plots>=2\n") == {"plots": "3.0"}


def test_check_mode_writes_no_lock_and_the_next_deployment_resolves_to_the_same_versions(
    lock: ProgramLock, index: Path
) -> None:
    before = sorted(lock.file.parent.iterdir())
    checked = lock.resolve(lambda _: None, keep=False)
    assert sorted(lock.file.parent.iterdir()) == sorted([*before, lock.cache])
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
    lock.path.with_name(f".{lock.path.name}").mkdir()
    with pytest.raises(ValueError, match=r"cannot be written \(.*\).*Let this user write in") as error:
        deployed(lock)
    assert all(word in str(error.value) for word in (VARIABLE, str(lock.path), str(lock.file)))


def test_hashes_of_the_user_narrow_those_of_the_lock(lock: ProgramLock, index: Path) -> None:
    digest = hashlib.sha256((index / "plots-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    assert resolved(lock, f"plots==1.0 \\\n  --hash=sha256:{digest}\n") == {"plots": "1.0"}
    for name in ("plots", "numpy"):
        with pytest.raises(ValueError, match=f"allows {name} only with other hashes"):
            resolved(lock, f"{name} --hash=sha256:{'f' * 64}\n")


def test_each_environment_gets_its_own_wheels_and_if_possible_the_versions_of_the_others(
    lock: ProgramLock, index: Path, tmp_path: Path
) -> None:
    make_package(index, "native", "1.0", tag="cp311-cp311-manylinux_2_17_x86_64")
    assert resolved(lock, "native\nplots\n") == {"native": "1.0", "plots": "1.0"}
    make_package(index, "plots", "2.0")
    other = program_lock(tmp_path, HostEnvironment("cpu", "3.12", "aarch64"), "native\nplots\n")
    with pytest.raises(ValueError, match=r"cannot be resolved for cpu-python3\.12-aarch64") as error:
        deployed(other)
    assert "native" in str(error.value)
    make_package(index, "native", "1.1", tag="cp312-cp312-manylinux_2_28_aarch64")
    assert resolved(other, "native\nplots\n") == {"native": "1.1", "plots": "1.0"}


def test_cuda_packages_of_tensorflow_come_with_a_gpu_environment_alone(
    index: Path, tmp_path: Path, lock: ProgramLock
) -> None:
    make_package(index, "nvidia_nccl_cu12", "2.32.3")
    assert resolved(lock, "tensorflow[and-cuda]\nplots\n") == {"plots": "1.0"}
    gpu = program_lock(tmp_path, GPU)
    assert resolved(gpu, "tensorflow-cpu>=2.20\nplots\n") == {"nvidia-nccl-cu12": "2.32.3", "plots": "1.0"}
    assert "tensorflow" in read_locks([gpu.path])
    own_cuda = program_lock(tmp_path, HostEnvironment("gpu-system", "3.11", "x86_64"))
    assert resolved(own_cuda, "tensorflow[and-cuda]\nplots\n") == {"plots": "1.0"}


# Which environment a program's environment begins with


def store_for(lock: ProgramLock, folder: Path, text: str, *installed: str) -> WheelStore:
    """Return the store of a program with these requirements, beside psfleet's own store."""
    (folder / "installer.txt").write_text("uv==1.0\n")
    own = WheelStore(CPU, lock.preferred, folder / "installer.txt", lock.cache)
    of_program = own.program_lock(with_text(lock, text).requirements, with_text(lock, text).environment)
    return own.program_store(of_program, deployed(of_program), installed)


def test_a_program_without_packages_of_its_own_has_psfleets_environment(
    lock: ProgramLock, tmp_path: Path
) -> None:
    own = store_for(lock, tmp_path, "numpy\n")
    assert own.locks == lock.preferred
    assert store_for(lock, tmp_path, "tensorflow\n").lock_hash == own.lock_hash


def test_an_environment_with_the_same_tensorflow_is_begun_with(lock: ProgramLock, tmp_path: Path) -> None:
    own = store_for(lock, tmp_path, "numpy\n")
    plots = store_for(lock, tmp_path, "plots\n")
    assert plots.base is not None
    assert (plots.base.lock_hash, [*plots.lacking], plots.removed) == (own.lock_hash, ["plots"], [])
    assert plots.lock_hash == store_for(lock, tmp_path, "plots  # is no other package\n").lock_hash
    older = store_for(lock, tmp_path, "numpy<2\n")
    assert ([*older.lacking], older.removed) == (["numpy"], ["numpy"])
    # Another TensorFlow begins with nothing, until hosts have an environment of it.
    first = store_for(lock, tmp_path, "tensorflow==2.15.1\n")
    assert (first.base, sorted(first.lacking)) == (None, ["numpy", "tensorflow-cpu"])
    first.folder.mkdir(parents=True)
    (first.folder / "lock.txt").write_text(without_comments(first.locks[0]))
    make_package(tmp_path / "index", "lines", "1.0")
    name = first.lock_hash
    second = store_for(lock, tmp_path, "tensorflow==2.15.1\nlines\n", "0" * 12, own.lock_hash, name)
    assert second.base is not None
    assert (second.base.lock_hash, [*second.lacking], second.removed) == (name, ["lines"], [])
    described = second.describe()
    assert (described["base"], described["removed"]) == (name, [])
    assert second.archive != store_for(lock, tmp_path, "tensorflow==2.15.1\nlines\n").archive
