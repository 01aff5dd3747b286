"""The environment's installation with real wheels, the real uv and a real interpreter."""

import getpass
import hashlib
import importlib
import io
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

module: Any = importlib.import_module("plugins.modules.python_environment")

NAME = "psfleet_sample"
WHEEL = f"{NAME}-1.0-py3-none-any.whl"
UV = Path(sys.prefix) / "bin" / "uv"


def sample_wheel() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as wheel:
        wheel.writestr(f"{NAME}.py", "__version__ = '1.0'\n")
        wheel.writestr(
            f"{NAME}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{NAME}-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        names = (f"{NAME}.py", f"{NAME}-1.0.dist-info/METADATA", f"{NAME}-1.0.dist-info/WHEEL")
        record = "".join(f"{name},,\n" for name in names)
        wheel.writestr(f"{NAME}-1.0.dist-info/RECORD", record + f"{NAME}-1.0.dist-info/RECORD,,\n")
    return stream.getvalue()


def make_archive(path: Path, wheel: bytes, locked_hash: str) -> Path:
    files = {
        f"wheels/{WHEEL}": wheel,
        "requirements.txt": f"{NAME}==1.0 --hash=sha256:{locked_hash}\n".encode(),
        "uv": UV.read_bytes(),
    }
    with tarfile.open(path, "w") as stream:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755 if name == "uv" else 0o644
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
