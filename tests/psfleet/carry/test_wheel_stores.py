"""The archive of an environment in the cache: made once, from cached and downloaded wheels."""

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from plugins.module_utils.content_directory import locked
from plugins.module_utils.environments.environment import DEVICES, HostEnvironment
from psfleet.carry import wheel_stores, wheels
from psfleet.carry.locks import read_locks
from psfleet.carry.long_step import bytes_read, report_progress
from psfleet.carry.wheel_archive import installed_bytes
from psfleet.carry.wheel_stores import USUAL_BYTES, USUAL_BYTES_OF_TENSORBOARD, WheelStore
from tests.psfleet.carry.long_steps import report_at_the_end
from tests.psfleet.carry.made_wheels import lock_line, make_wheel
from trainer.host.wording import readable

CPU = HostEnvironment("cpu", "3.11", "x86_64")


@pytest.fixture
def store(tmp_path: Path) -> WheelStore:
    """Return a store of two locks with wheels in the folder "index"."""
    index = tmp_path / "index"
    some = make_wheel(index, "Some_Package-1.0-py3-none-any.whl", {"some_package.py": b"A = 1\n"})
    other = make_wheel(index, "other-2.0-py3-none-any.whl", {"other.py": b""})
    uv = make_wheel(index, "uv-1.0-py3-none-any.whl", {"uv-1.0.data/scripts/uv": b"\x7fELF"})
    (tmp_path / "some.txt").write_text(lock_line("some-package==1.0", "0" * 64, some))
    (tmp_path / "other.txt").write_text(lock_line("other==2.0", other))
    (tmp_path / "installer.txt").write_text(lock_line("uv==1.0", uv))
    locks = (tmp_path / "some.txt", tmp_path / "other.txt")
    return WheelStore(CPU, locks, tmp_path / "installer.txt", tmp_path / "cache")


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace pip by a copy, and return the packages requested by each download."""
    found: list[str] = []

    def command(_environment: HostEnvironment, lock: Path, wheels: Path) -> list[str]:
        names = list(read_locks([lock]))
        found.append(",".join(names))
        copies = " ".join(
            str(next((tmp_path / "index").glob(f"[{name[0]}{name[0].upper()}]*"))) for name in names
        )
        # Pip must unpack on the cache's disk, too.
        return ["sh", "-c", f'[ "$TMPDIR" -ef {wheels.parent}/temporary ] && cp {copies} {wheels}']

    monkeypatch.setattr("psfleet.carry.wheels.download_command", command)
    return found


def silently(store: WheelStore) -> None:
    store.fill(lambda _: None)


@pytest.mark.parametrize(
    ("lock", "words"),
    [
        (lock_line("nothing==1.0", "0" * 64), ["No matching distribution found for nothing==1.0"]),
        (lock_line("other==2.0", "a" * 64), ["other==2.0", f"Expected sha256 {'a' * 64}", "Got"]),
    ],
)
def test_a_wheel_that_pip_cannot_download_leaves_no_archive_and_is_reported_in_pips_words(
    store: WheelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str, words: list[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "other.txt").write_text(lock)
    with pytest.raises(ValueError, match="could not be downloaded; nothing was installed") as error:
        silently(store)
    assert all(word in str(error.value) for word in [*words, "for cpu-python3.11-x86_64"])
    assert not store.archive.exists()
    assert store.describe()["archive_sha256"] == ""
    assert not (store.cache / "wheels" / "pool").exists()


def test_an_archive_in_the_cache_is_not_made_twice(store: WheelStore, asked: list[str]) -> None:
    said: list[str] = []
    store.fill(said.append)
    assert said[0].startswith("Download 3 wheels of cpu-python3.11-x86_64 to")
    described = store.describe()
    assert hashlib.sha256(store.archive.read_bytes()).hexdigest() == described["archive_sha256"]
    assert store.archive.stat().st_size == described["archive_bytes"]
    assert (described["archive"], described["python_version"]) == (str(store.archive), "3.11")
    pool = store.cache / "wheels" / "pool"
    installed = installed_bytes([*pool.glob("Some*"), *pool.glob("other*")])
    assert (described["lock_hash"], described["environment_bytes"]) == (store.lock_hash, installed)
    with tarfile.open(store.archive) as stream:
        lock = stream.extractfile("requirements.txt")
        assert lock is not None
        assert lock.read().decode() == "".join(path.read_text() for path in store.locks)
    store.fill(said.append)
    assert asked == ["other,some-package,uv"]
    size = sum(wheel.stat().st_size for wheel in pool.iterdir())
    assert re.fullmatch(rf"  {readable(size)}, \d{{1,3}} s", said[1])
    assert len(said) == 2


def test_only_missing_and_damaged_wheels_are_downloaded(store: WheelStore, asked: list[str]) -> None:
    silently(replace(store, locks=store.locks[:1]))
    said: list[str] = []
    store.fill(said.append)
    assert asked == ["some-package,uv", "other"]
    pool = store.cache / "wheels" / "pool"
    assert said[1].startswith(f"  {readable((pool / 'other-2.0-py3-none-any.whl').stat().st_size)}, ")
    assert len(list(pool.iterdir())) == 3
    # The files of the archive are copies: damage in the pool does not reach them.
    (pool / "other-2.0-py3-none-any.whl").write_bytes(b"damaged")
    shutil.rmtree(store.folder)
    silently(store)
    assert asked[2] == "other"
    assert (pool / "other-2.0-py3-none-any.whl").stat().st_size > len(b"damaged")


def test_complete_wheels_of_an_interrupted_download_are_used(
    store: WheelStore, asked: list[str], tmp_path: Path
) -> None:
    wheels = store.folder.with_suffix(".partial") / "wheels"
    wheels.mkdir(parents=True)
    for name in ("Some_Package-1.0-py3-none-any.whl", "uv-1.0-py3-none-any.whl"):
        shutil.copy(tmp_path / "index" / name, wheels)
    shutil.copy(wheels / "uv-1.0-py3-none-any.whl", wheels / "stray-1.0-py3-none-any.whl")
    (wheels / "uv-1.0-py3-none-any.whl").write_bytes(b"half")
    silently(store)
    assert not list((store.cache / "wheels" / "pool").glob("stray*"))
    assert asked == ["other,uv"]
    assert store.archive.exists()
    assert not store.folder.with_suffix(".partial").exists()


def test_environments_of_the_same_locks_differ_by_python_and_processor(store: WheelStore) -> None:
    names = ["cpu-python3.11-x86_64", "cpu-python3.12-x86_64", "cpu-python3.11-aarch64"]
    hashes = {replace(store, environment=HostEnvironment.parse(name)).lock_hash for name in names}
    assert len(hashes) == len(names)


def test_the_usual_size_is_reported_until_an_archive_exists(store: WheelStore) -> None:
    assert set(USUAL_BYTES) == set(DEVICES)
    described = replace(store, usual_bytes=(3, 5)).describe()
    assert (described["archive_bytes"], described["environment_bytes"]) == (3, 5)


def test_too_little_space_on_the_controller_is_reported_before_the_download(
    store: WheelStore, asked: list[str]
) -> None:
    free = shutil.disk_usage(store.installer.parent).free
    greedy = replace(store, usual_bytes=(free // 2, 0))
    what = "Too little space on this machine for the wheels of cpu-python3.11-x86_64: "
    do = r"\. Nothing was downloaded\. Free some, or name another place: "
    with pytest.raises(ValueError, match=rf"{what}.*{do}package_store_cache_directory or PSFLEET_CACHE$"):
        silently(greedy)
    assert asked == []


def wait_for(condition: Callable[[], bool]) -> None:
    over = threading.Event()
    for _ in range(500):
        if condition():
            return
        over.wait(0.01)
    raise AssertionError("it did not come")


def test_a_wait_for_another_deployment_is_reported(
    store: WheelStore, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(wheel_stores, "report_progress", lambda say, what: report_progress(say, what, 0.01))
    (store.cache / "wheels").mkdir(parents=True)
    filling = threading.Thread(target=store.fill, args=[said.append])
    with locked(store.cache / "wheels" / f".{store.lock_hash}.lock", 1):
        filling.start()
        wait_for(lambda: bool(said))
        assert asked == []
    filling.join()
    assert said[0].startswith(f"  wait for another deployment that makes {store.archive}, 0 s")
    assert store.archive.exists()


def test_long_operations_report_their_progress_in_bytes(
    store: WheelStore, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    for module in (wheels, wheel_stores):
        monkeypatch.setattr(module, "report_progress", report_at_the_end)
    store.fill(said.append)
    assert len(asked) == 1
    size = sum(wheel.stat().st_size for wheel in (store.cache / "wheels" / "pool").iterdir())
    packed = readable(store.archive.stat().st_size)
    assert [line for line in said if "each" in line] == [
        f"wait for another deployment that makes {store.archive} each 10 s",
        "check the wheels of cpu-python3.11-x86_64 that are already here each 10 s",
        "0 bytes each 5 s",
        f"packed {packed} of {readable(size)} each 10 s",
    ]


def test_bytes_read_returns_how_far_another_program_has_read_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(b"0" * 5000)
    assert bytes_read(path) == 0
    program = "import sys; f = open(sys.argv[1], 'rb', 0); f.read(1234); print(flush=True); sys.stdin.read()"
    reader = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert reader.stdout is not None
    reader.stdout.readline()
    assert bytes_read(path) == 1234
    reader.communicate()
    assert bytes_read(path) == 0


def test_tensorboard_has_a_wheel_store_of_its_own(store: WheelStore) -> None:
    locks = store.installer.parent
    board = WheelStore.of(HostEnvironment("gpu", "3.13", "x86_64"), locks, store.cache, tensorboard=True)
    assert board.locks == (locks / "tensorboard-python3.13.txt",)
    assert board.usual_bytes == USUAL_BYTES_OF_TENSORBOARD
    tensorflow = WheelStore.of(CPU, locks, store.cache)
    expected = (CPU, tuple(locks / name for name in CPU.locks), store.installer, store.cache)
    assert tensorflow == WheelStore(*expected, usual_bytes=USUAL_BYTES["cpu"])


def test_remains_of_an_interrupted_download_reduce_the_required_space(
    store: WheelStore, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    partial, needed = store.folder.with_suffix(".partial"), list[int]()
    for left, size in {"cache/http-v2/body": 1000, "cache/http-v2/more": 500, "temporary/x": 1500}.items():
        (partial / left).parent.mkdir(parents=True, exist_ok=True)
        (partial / left).write_bytes(b"w" * size)

    def lacking_space(asked: tuple[Path, int]) -> str:
        needed.append(asked[1])
        return ""

    monkeypatch.setattr(wheel_stores, "lacking_space", lacking_space)
    silently(replace(store, usual_bytes=(4000, 0)))
    assert needed == [4000 + 2 * 4000 - 3000]
    assert asked
    # Wheels in the pool need no download, but their archive needs space.
    pooled = sum(wheel.stat().st_size for wheel in (store.cache / "wheels" / "pool").iterdir())
    for usual, downloads in ((4000, 2 * (4000 - pooled)), (pooled - 1, 0)):
        shutil.rmtree(store.folder)
        silently(replace(store, usual_bytes=(usual, 0)))
        assert needed[-1] == usual + downloads
