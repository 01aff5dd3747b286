import hashlib
import tarfile
import zipfile
from pathlib import Path

import pytest

from plugins.action.wheel_store import WheelStore, explain, locked_hashes, pack, verify

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
    verify(tmp_path / "wheels", [store.requirements, store.installer])
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
        verify(tmp_path / "wheels", [store.requirements, store.installer])
    assert all(text in str(error.value) for text in (str(wheel), expected, found))


def test_a_wheel_that_is_missing_is_named(store: WheelStore, tmp_path: Path) -> None:
    (tmp_path / "wheels" / "Some_Package-1.0-py3-none-any.whl").unlink()
    with pytest.raises(ValueError, match="no wheel was downloaded for some_package"):
        verify(tmp_path / "wheels", [store.requirements, store.installer])


def test_a_download_that_fails_leaves_no_archive_and_says_why(
    store: WheelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "plugins.action.wheel_store.download_command",
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
    def command(_version: str, _locks: list[Path], wheels: Path) -> list[str]:
        return ["sh", "-c", f"cp {tmp_path}/wheels/* {wheels}"]

    monkeypatch.setattr("plugins.action.wheel_store.download_command", command)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    said: list[str] = []
    store.fill(said.append)
    assert said[0].startswith("Download 2 wheels")
    described = store.describe()
    assert hashlib.sha256(store.archive.read_bytes()).hexdigest() == described["archive_sha256"]
    assert store.archive.stat().st_size == described["archive_bytes"]
    monkeypatch.setattr("plugins.action.wheel_store.download_command", lambda *_: ["false"])
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
        allowed = locked_hashes(path)
        assert allowed
        assert all(allowed.values())
        assert "://" not in path.read_text(encoding="utf-8")
    assert "tensorflow_cpu" in locked_hashes(ROLE / "files" / "requirements-cpu-python3.11.txt")
    assert set(locked_hashes(ROLE / "files" / "installer.txt")) == {"uv"}
