"""The environment's installation with real wheels, the real uv and a real interpreter."""

import getpass
import hashlib
import importlib
import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

module: Any = importlib.import_module("plugins.modules.python_environment")

NAME = "psfleet_sample"
UV = Path(sys.prefix) / "bin" / "uv"


def sample_wheel(name: str = NAME) -> bytes:
    """Return a wheel with one module and one program."""
    information = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "__version__ = '1.0'\n\ndef main():\n    import sys; print(sys.prefix)\n",
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{information}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
        record = "".join(f"{path},,\n" for path in [*files, f"{information}/RECORD"])
        wheel.writestr(f"{information}/RECORD", record)
    return stream.getvalue()


def make_archive(path: Path, wheel: bytes, locked_hash: str, name: str = NAME) -> Path:
    files = {
        f"wheels/{name}-1.0-py3-none-any.whl": wheel,
        "requirements.txt": f"{name}==1.0 --hash=sha256:{locked_hash}\n".encode(),
        "uv": UV.read_bytes(),
    }
    with tarfile.open(path, "w") as stream:
        for file, content in files.items():
            member = tarfile.TarInfo(file)
            member.size, member.mode = len(content), 0o755 if file == "uv" else 0o644
            stream.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def host(tmp_path: Path) -> Path:
    # pytest's directories are closed to others, and the tasks' user has to get in.
    return tmp_path / "host"


def environment(host: Path, archive: Path) -> Any:  # noqa: ANN401
    lock = module.Lock(
        name="0123456789ab",
        archive_sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        archive_bytes=archive.stat().st_size,
        environment_bytes=1,
        python_version=f"{sys.version_info[0]}.{sys.version_info[1]}",
        module=NAME,
    )
    return module.Environment(host, lock)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    wheel = sample_wheel()
    return make_archive(tmp_path / "wheels.tar", wheel, hashlib.sha256(wheel).hexdigest())


def test_an_environment_is_installed_offline_with_byte_code(host: Path, archive: Path) -> None:
    fresh = environment(host, archive)
    assert fresh.install(archive, getpass.getuser()) == "1.0"
    fresh.use()
    assert fresh.is_complete()
    assert fresh.is_in_use()
    assert list(fresh.place.rglob(f"__pycache__/{NAME}*.pyc"))
    assert sorted(path.name for path in fresh.folder.iterdir()) == [".lock", "0123456789ab"]


def test_the_rest_of_an_interrupted_installation_is_replaced(host: Path, archive: Path) -> None:
    fresh = environment(host, archive)
    (fresh.place / "lib").mkdir(parents=True)
    (fresh.place / "lib" / "half.py").write_text("")
    (fresh.work / "wheels").mkdir(parents=True)
    assert not fresh.is_complete()
    fresh.install(archive, getpass.getuser())
    assert not (fresh.place / "lib" / "half.py").exists()
    assert not fresh.work.exists()


def test_an_environment_that_adds_to_another_has_both_and_leaves_the_other_as_it_was(
    host: Path, archive: Path, tmp_path: Path
) -> None:
    base = environment(host, archive)
    base.install(archive, getpass.getuser())
    untouched = {path: path.lstat().st_mtime_ns for path in base.place.rglob("*") if path.is_file()}
    wheel = sample_wheel("psfleet_added")
    added = make_archive(tmp_path / "x.tar", wheel, hashlib.sha256(wheel).hexdigest(), "psfleet_added")
    lock = environment(host, added).lock
    both = module.Environment(
        host,
        module.Lock(**{**vars(lock), "name": "f" * 12, "base": base.lock.name, "module": "psfleet_added"}),
    )
    both.install(added, getpass.getuser())
    both.use()
    command = [str(host / "environment" / "bin" / "python"), "-c", f"import {NAME}, psfleet_added"]
    subprocess.run(command, check=True)
    for program in (NAME, "psfleet_added"):
        said = subprocess.run([both.place / "bin" / program], capture_output=True, text=True, check=True)
        assert said.stdout.strip() == str(both.place)
    assert {path: path.lstat().st_mtime_ns for path in base.place.rglob("*") if path.is_file()} == untouched
    assert not list(base.place.rglob("psfleet_added*"))
    assert next(both.place.rglob(f"{NAME}.py")).samefile(next(base.place.rglob(f"{NAME}.py")))


def test_an_environment_cannot_add_to_one_that_is_not_complete(host: Path, archive: Path) -> None:
    fresh = environment(host, archive)
    (host / "environments" / "abc").mkdir(parents=True)
    both = module.Environment(host, module.Lock(**{**vars(fresh.lock), "base": "abc"}))
    with pytest.raises(ValueError, match="environments/abc, which it adds to, is not complete"):
        both.install(archive, getpass.getuser())
    assert not both.is_complete()


def test_an_environment_without_a_link_leaves_the_one_in_use(host: Path, archive: Path) -> None:
    fresh = module.Environment(host, environment(host, archive).lock, "")
    fresh.install(archive, getpass.getuser())
    fresh.use()
    assert fresh.is_in_use()
    assert sorted(path.name for path in host.iterdir()) == ["environments"]


def test_a_host_of_another_kind_gets_the_other_environment_and_keeps_the_one_it_had(
    host: Path, archive: Path, tmp_path: Path
) -> None:
    cpu = environment(host, archive)
    cpu.install(archive, getpass.getuser())
    cpu.use()
    wheel = sample_wheel("psfleet_gpu")
    other = make_archive(tmp_path / "x.tar", wheel, hashlib.sha256(wheel).hexdigest(), "psfleet_gpu")
    lock = environment(host, other).lock
    gpu = module.Environment(host, module.Lock(**{**vars(lock), "name": "f" * 12, "module": "psfleet_gpu"}))
    assert not gpu.is_in_use()
    gpu.install(other, getpass.getuser())
    gpu.use()
    command = [str(host / "environment" / "bin" / "python"), "-c"]
    subprocess.run([*command, "import psfleet_gpu"], check=True)
    assert subprocess.run([*command, f"import {NAME}"], capture_output=True, check=False).returncode == 1
    assert cpu.is_complete()
    cpu.use()  # and back, at no cost
    subprocess.run([*command, f"import {NAME}"], check=True)


def test_a_damaged_archive_is_refused_and_nothing_unpacked(host: Path, archive: Path) -> None:
    fresh = environment(host, archive)
    archive.write_bytes(archive.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"damaged on its way: sha256 is .*expected .*Nothing was unpacked"):
        fresh.install(archive, getpass.getuser())
    assert not fresh.place.exists()
    assert not fresh.link.exists()


def test_a_wheel_that_the_lock_does_not_know_is_refused(host: Path, tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "other.tar", sample_wheel(), "0" * 64)
    fresh = environment(host, archive)
    with pytest.raises(ValueError, match="Hash mismatch"):
        fresh.install(archive, getpass.getuser())
    assert not fresh.is_complete()


def test_an_environment_whose_module_does_not_load_is_not_complete(host: Path, archive: Path) -> None:
    fresh = environment(host, archive)
    broken = module.Environment(host, module.Lock(**{**vars(fresh.lock), "module": "no_such_module"}))
    with pytest.raises(ValueError, match="No module named 'no_such_module'"):
        broken.install(archive, getpass.getuser())
    assert not broken.is_complete()
    assert not broken.link.exists()


def test_too_little_space_is_said_before_anything_is_copied(
    host: Path, archive: Path, tmp_path: Path
) -> None:
    fresh = environment(host, archive)
    assert fresh.lacking_space(tmp_path) == ""
    too_much = shutil.disk_usage(tmp_path).free
    greedy = module.Environment(host, module.Lock(**{**vars(fresh.lock), "environment_bytes": too_much}))
    assert "GB free" in greedy.lacking_space(tmp_path)
    assert str(tmp_path) in greedy.lacking_space(tmp_path)
