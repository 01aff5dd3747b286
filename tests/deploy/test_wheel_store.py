import hashlib
import tarfile
import zipfile
from pathlib import Path

import pytest

from plugins.action.wheel_store import WheelStore
from plugins.locks import Pinned, lock_text, read_lock, read_locks
from plugins.wheels import explain, pack, require_own_modules, unpacked_bytes, verify

ROLE = Path(__file__).resolve().parents[2] / "roles" / "package_store"


def make_wheel(folder: Path, name: str, files: dict[str, bytes]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as stream:
        for path, content in files.items():
            stream.writestr(path, content)
    return hashlib.sha256((folder / name).read_bytes()).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> WheelStore:
    wheels = tmp_path / "wheels"
    grpc = make_wheel(wheels, "Some_Package-1.0-py3-none-any.whl", {"some_package.py": b"A = 1\n"})
    uv = make_wheel(wheels, "uv-1.0-py3-none-any.whl", {"uv-1.0.data/scripts/uv": b"\x7fELF"})
    (tmp_path / "lock.txt").write_text(
        f"some-package==1.0 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{grpc}\n"
    )
    (tmp_path / "installer.txt").write_text(f"uv==1.0 \\\n    --hash=sha256:{uv}\n")
    return WheelStore(tmp_path / "lock.txt", tmp_path / "installer.txt", "3.11", tmp_path / "cache")


def test_wheels_that_the_lock_knows_are_packed_with_the_installer(store: WheelStore, tmp_path: Path) -> None:
    verify(tmp_path / "wheels", read_locks([store.requirements, store.installer]))
    pack(tmp_path / "wheels", store.requirements, tmp_path / "x.tar")
    with tarfile.open(tmp_path / "x.tar") as stream:
        members = {member.name: member for member in stream}
    assert sorted(members) == ["requirements.txt", "uv", "wheels/Some_Package-1.0-py3-none-any.whl"]
    assert members["uv"].mode == 0o755


def test_a_wheel_that_is_not_the_locked_one_is_named_with_both_hashes(
    store: WheelStore, tmp_path: Path
) -> None:
    wheel = tmp_path / "wheels" / "Some_Package-1.0-py3-none-any.whl"
    expected = hashlib.sha256(wheel.read_bytes()).hexdigest()
    wheel.write_bytes(wheel.read_bytes()[:-1])
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with pytest.raises(ValueError, match="nothing was installed") as error:
        verify(tmp_path / "wheels", read_locks([store.requirements, store.installer]))
    assert all(text in str(error.value) for text in (str(wheel), expected, found))


def test_a_wheel_that_is_missing_is_named(store: WheelStore, tmp_path: Path) -> None:
    (tmp_path / "wheels" / "Some_Package-1.0-py3-none-any.whl").unlink()
    with pytest.raises(ValueError, match="no wheel was downloaded for some_package"):
        verify(tmp_path / "wheels", read_locks([store.requirements, store.installer]))


def test_a_download_that_fails_leaves_no_archive_and_says_why(
    store: WheelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "plugins.wheels.download_command",
        lambda *_: ["sh", "-c", "echo 'No matching distribution found for some-package==1.0'; exit 1"],
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    with pytest.raises(ValueError, match="No matching distribution found for some-package"):
        store.fill(lambda _: None)
    assert not store.archive.exists()
    assert store.describe()["archive_sha256"] == ""


def test_what_was_downloaded_is_used_by_the_next_clone_without_pip(
    store: WheelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(_version: str, _lock: Path, wheels: Path) -> list[str]:
        return ["sh", "-c", f"cp {tmp_path}/wheels/* {wheels}"]

    monkeypatch.setattr("plugins.wheels.download_command", command)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    said: list[str] = []
    store.fill(said.append)
    assert said[0].startswith("Download 2 wheels")
    described = store.describe()
    assert hashlib.sha256(store.archive.read_bytes()).hexdigest() == described["archive_sha256"]
    assert store.archive.stat().st_size == described["archive_bytes"]
    monkeypatch.setattr("plugins.wheels.download_command", lambda *_: ["false"])
    store.fill(said.append)
    assert len(said) == 2


def test_pips_refusal_becomes_the_package_and_both_hashes(tmp_path: Path) -> None:
    log = tmp_path / "pip.log"
    log.write_text(
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n"
        "    absl-py==2.5.1 from file:///x/absl_py-2.5.1-py3-none-any.whl (from -r lock.txt (line 1)):\n"
        f"        Expected sha256 {'a' * 64}\n"
        f"             Got        {'b' * 64}\n"
    )
    assert explain(log) == f"absl-py==2.5.1: sha256 is {'b' * 64}, the lock expects {'a' * 64}.\n"


def test_the_lock_pins_every_package_with_hashes_and_names_no_registry() -> None:
    for path in (ROLE / "files").glob("*.txt"):
        packages = read_locks([path])
        assert packages
        assert all(package.hashes for package in packages.values())
        assert "://" not in path.read_text(encoding="utf-8")
    assert "tensorflow_cpu" in read_locks([ROLE / "files" / "requirements-cpu-python3.11.txt"])
    assert set(read_locks([ROLE / "files" / "installer.txt"])) == {"uv"}


def test_a_lock_that_is_written_reads_as_it_was() -> None:
    packages = {"a_b": Pinned("A.b", "1.0", frozenset({"0" * 64, "1" * 64}))}
    assert read_lock(lock_text(packages.values())) == packages


def test_wheels_at_hand_are_not_downloaded_again_and_damaged_ones_are(
    store: WheelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def command(_version: str, lock: Path, wheels: Path) -> list[str]:
        asked.append(",".join(read_locks([lock])))
        return ["sh", "-c", f"cp {tmp_path}/wheels/* {wheels}"]

    monkeypatch.setattr("plugins.wheels.download_command", command)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    store.fill(lambda _: None)
    other = make_wheel(tmp_path / "wheels", "other-2.0-py3-none-any.whl", {"other.py": b""})
    (tmp_path / "more.txt").write_text(
        store.requirements.read_text() + f"other==2.0 \\\n    --hash=sha256:{other}\n"
    )
    more = WheelStore(tmp_path / "more.txt", store.installer, "3.11", store.cache)
    more.fill(lambda _: None)
    assert asked == ["some_package,uv", "other"]
    pool = store.cache / "wheels" / "pool"
    assert len(list(pool.iterdir())) == 3
    # The archive's own files are not those of the pool: what happens there does not reach them.
    (pool / "other-2.0-py3-none-any.whl").write_bytes(b"damaged")
    (tmp_path / "more.txt").write_text(more.requirements.read_text() + "\n")
    again = WheelStore(tmp_path / "more.txt", store.installer, "3.11", store.cache)
    again.fill(lambda _: None)
    assert asked[2] == "other"
    assert (pool / "other-2.0-py3-none-any.whl").stat().st_size > len(b"damaged")


def test_another_tensorflow_is_not_put_over_the_environments_own(tmp_path: Path) -> None:
    make_wheel(tmp_path, "tf_nightly-2.22-cp311-none-any.whl", {"tensorflow/__init__.py": b""})
    with pytest.raises(ValueError, match="asks for tf_nightly, which is TensorFlow under another name"):
        require_own_modules(tmp_path)


def test_the_disk_that_wheels_take_is_known_before_they_are_carried(
    store: WheelStore, tmp_path: Path
) -> None:
    make_wheel(tmp_path / "wheels", "big-1.0-py3-none-any.whl", {"big.bin": b"0" * 5000})
    pack(tmp_path / "wheels", store.requirements, tmp_path / "x.tar")
    assert unpacked_bytes(tmp_path / "x.tar") == 5000 + len(b"A = 1\n")
