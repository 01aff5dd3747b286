"""The environment's installation with real wheels, the real uv and a real interpreter."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from plugins.module_utils.environments.environment import HostEnvironment
from plugins.module_utils.environments.installation import ELSEWHERE
from plugins.modules import python_environment
from psfleet.carry.fan_out import parts_of
from psfleet.carry.filled_environment import fill_and_pack
from tests.plugins.modules.made_environments import NAME, environment, install, make_archive
from tests.plugins.modules.module_run import module_answer

THIS = HostEnvironment("cpu", f"{sys.version_info[0]}.{sys.version_info[1]}", platform.machine())


@pytest.fixture
def host(open_folder: Path) -> Path:
    return open_folder / "host"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return make_archive(tmp_path / "wheels.tar")


def test_an_environment_is_installed_offline_with_byte_code(host: Path, archive: Path) -> None:
    fresh = environment(host, archive)
    assert install(fresh, archive) == "1.0"
    fresh.use()
    assert fresh.is_complete()
    assert fresh.is_in_use()
    assert list(fresh.place.rglob(f"__pycache__/{NAME}*.pyc"))
    assert sorted(path.name for path in fresh.folder.iterdir()) == [".lock", "0123456789ab"]


def test_an_environment_filled_elsewhere_equals_one_installed_here(
    host: Path, archive: Path, tmp_path: Path
) -> None:
    here = environment(host, archive, "1" * 12)
    install(here, archive)
    packed = tmp_path / "filled.tar.zst"
    size = fill_and_pack(archive, THIS, packed)
    there = environment(host, packed, filled=True)
    assert install(there, packed) == "1.0"
    said = subprocess.run([there.place / "bin" / NAME], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str(there.place)
    installed = {path.relative_to(there.place) for path in there.place.rglob("*")}
    assert installed == {path.relative_to(here.place) for path in here.place.rglob("*")}
    files = [path for path in there.place.rglob("*") if path.is_file() and not path.is_symlink()]
    assert {(path.stat().st_uid, path.stat().st_mode & 0o7777) for path in files} <= {(0, 0o644), (0, 0o755)}
    assert not [path for path in files if ELSEWHERE in path.read_bytes()]
    # The byte code belongs to the sources as installed here.
    (code,) = there.place.rglob(f"__pycache__/{NAME}*.pyc")
    (source,) = there.place.rglob(f"{NAME}.py")
    assert int.from_bytes(code.read_bytes()[8:12], "little") == int(source.stat().st_mtime)
    assert size > sum(path.stat().st_size for path in there.place.rglob("lib/**/*") if path.is_file())


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda content: content[:-20], "it ends before its end"),
        (lambda content: b"x" * 100 + content, "it is not an archive of Zstandard"),
        (lambda _: zstandard.compress(b"no archive" * 200), "tar .* ended with 2: tar: This does not look"),
    ],
)
def test_a_damaged_filled_archive_leaves_no_complete_environment(
    host: Path, archive: Path, tmp_path: Path, damage: Callable[[bytes], bytes], says: str
) -> None:
    packed = tmp_path / "filled.tar.zst"
    fill_and_pack(archive, THIS, packed)
    packed.write_bytes(damage(packed.read_bytes()))
    there = environment(host, packed, filled=True)
    with pytest.raises(ValueError, match=says):
        install(there, packed)
    assert not there.is_complete()


def test_a_shared_archive_is_available_to_neighbours_until_the_installation_ends(
    host: Path, tmp_path: Path
) -> None:
    # The module's version lists the files beside the environment at that moment.
    sees = "import os, sys\n__version__ = sorted(os.listdir(os.path.dirname(sys.prefix)))\n"
    archive = make_archive(tmp_path / "x.tar", "psfleet_sees", files={"psfleet_sees.py": sees})
    content = archive.read_bytes()
    fresh = environment(host, archive)
    seen = fresh.install(archive, "psfleet_sees", {})
    assert seen == "['.archive-0123456789ab', '.lock', '0123456789ab']"
    assert sorted(path.name for path in fresh.folder.iterdir()) == [".lock", "0123456789ab"]
    assert not archive.exists()
    archive.write_bytes(content)
    other = environment(host, archive, "f" * 12)
    archive.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="damaged on its way"):
        other.install(archive, "psfleet_sees", {})
    assert not list(fresh.folder.glob(".archive-*"))


def test_without_an_archive_from_a_neighbour_the_step_requests_one(host: Path, archive: Path) -> None:
    fresh = environment(host, archive)
    shared = {"login": "nobody", "neighbours": ["no-such-host.invalid"], **parts_of(archive)}
    said = module_answer(
        python_environment,
        **{"wheels": fresh.wheels, "directory": str(host), "module": NAME},
        shared=shared,
    )
    assert (said["needs_archive"], "failed" in said) == (True, False)
    assert "no-such-host.invalid: " in said["not_given"]
    assert not list(fresh.folder.glob(".archive-*"))


def test_remains_of_an_interrupted_installation_are_replaced(host: Path, archive: Path) -> None:
    fresh = environment(host, archive)
    (fresh.place / "lib").mkdir(parents=True)
    (fresh.place / "lib" / "half.py").write_text("")
    (fresh.work / "wheels").mkdir(parents=True)
    assert not fresh.is_complete()
    install(fresh, archive)
    assert not (fresh.place / "lib" / "half.py").exists()
    assert not fresh.work.exists()


def test_an_environment_that_adds_to_another_has_both_and_leaves_the_base_unchanged(
    host: Path, archive: Path, tmp_path: Path
) -> None:
    base = environment(host, archive)
    install(base, archive)
    untouched = {path: path.lstat().st_mtime_ns for path in base.place.rglob("*") if path.is_file()}
    added = make_archive(tmp_path / "x.tar", "psfleet_added")
    both = environment(host, added, "f" * 12, base=base.place.name, removed=[])
    install(both, added, "psfleet_added")
    both.use()
    command = [str(host / "environment" / "bin" / "python"), "-c", f"import {NAME}, psfleet_added"]
    subprocess.run(command, check=True)
    for program in (NAME, "psfleet_added"):
        said = subprocess.run([both.place / "bin" / program], capture_output=True, text=True, check=True)
        assert said.stdout.strip() == str(both.place)
    assert {path: path.lstat().st_mtime_ns for path in base.place.rglob("*") if path.is_file()} == untouched
    assert not list(base.place.rglob("psfleet_added*"))
    assert next(both.place.rglob(f"{NAME}.py")).samefile(next(base.place.rglob(f"{NAME}.py")))


def test_additions_that_the_controller_installed_are_unpacked_over_the_files_of_the_base(
    host: Path, archive: Path, tmp_path: Path
) -> None:
    base = environment(host, archive)
    install(base, archive)
    untouched = {path: path.read_bytes() for path in base.place.rglob("*") if path.is_file()}
    # The package has a file of the base, too.
    shared = {"psfleet_added.py": "__version__ = '1.0'\n", f"{NAME}.py": "__version__ = 'other'\n"}
    added = make_archive(tmp_path / "x.tar", "psfleet_added", files=shared)
    packed = tmp_path / "filled.tar.zst"
    fill_and_pack(added, THIS, packed)
    both = environment(host, packed, "f" * 12, base=base.place.name, removed=[], filled=True)
    install(both, packed, "psfleet_added")
    command = [str(both.place / "bin" / "python"), "-c", f"import {NAME}; print({NAME}.__version__)"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "other\n"
    assert {path: path.read_bytes() for path in untouched} == untouched


def test_a_package_that_marks_an_environment_as_complete_is_not_packed(tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "x.tar", files={f"{NAME}-1.0.data/data/.complete": ""})
    with pytest.raises(ValueError, match=r"contains \.complete"):
        fill_and_pack(archive, THIS, tmp_path / "filled.tar.zst")


def test_an_environment_leaves_out_packages_of_the_one_that_it_begins_with(
    host: Path, archive: Path, tmp_path: Path
) -> None:
    base = environment(host, archive)
    install(base, archive)
    untouched = {path: path.lstat().st_mtime_ns for path in base.place.rglob("*") if path.is_file()}
    other = make_archive(tmp_path / "x.tar", "psfleet_other")
    fresh = environment(host, other, "f" * 12, base=base.place.name, removed=[NAME.replace("_", "-")])
    install(fresh, other, "psfleet_other")
    assert list(fresh.place.rglob("psfleet_other.py"))
    assert not list(fresh.place.rglob(f"*{NAME}*"))
    assert {path: path.lstat().st_mtime_ns for path in base.place.rglob("*") if path.is_file()} == untouched


def test_an_environment_cannot_add_to_an_incomplete_one(host: Path, archive: Path) -> None:
    (host / "environments" / "abc").mkdir(parents=True)
    both = environment(host, archive, base="abc", removed=[])
    with pytest.raises(ValueError, match="environments/abc, with whose files it begins, is not complete"):
        install(both, archive)
    assert not both.is_complete()


def test_an_environment_without_a_link_leaves_the_one_in_use(host: Path, archive: Path) -> None:
    fresh = environment(host, archive, link="")
    install(fresh, archive)
    fresh.use()
    assert fresh.is_in_use()
    assert sorted(path.name for path in host.iterdir()) == ["environments"]


def test_a_host_that_changes_its_environment_keeps_the_previous_one(
    host: Path, archive: Path, tmp_path: Path
) -> None:
    cpu = environment(host, archive)
    install(cpu, archive)
    cpu.use()
    other = make_archive(tmp_path / "x.tar", "psfleet_gpu")
    gpu = environment(host, other, "f" * 12)
    assert not gpu.is_in_use()
    install(gpu, other, "psfleet_gpu")
    gpu.use()
    command = [str(host / "environment" / "bin" / "python"), "-c"]
    subprocess.run([*command, "import psfleet_gpu"], check=True)
    assert subprocess.run([*command, f"import {NAME}"], capture_output=True, check=False).returncode == 1
    assert cpu.is_complete()
    cpu.use()  # and back, at no cost
    subprocess.run([*command, f"import {NAME}"], check=True)


def test_a_damaged_archive_is_refused_before_unpacking(host: Path, archive: Path) -> None:
    fresh = environment(host, archive)
    archive.write_bytes(archive.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"damaged on its way: sha256 is .*expected .*Nothing was unpacked"):
        install(fresh, archive)
    assert not fresh.place.exists()
    assert not fresh.link.exists()


def test_a_wheel_with_another_hash_than_the_lock_is_refused(host: Path, tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "other.tar", locked_hash="0" * 64)
    fresh = environment(host, archive)
    hashes = (
        rf"(?s:Hash mismatch for `{NAME.replace('_', '-')}==1.0`.*sha256:{'0' * 64}.*sha256:[0-9a-f]{{64}})"
    )
    with pytest.raises(ValueError, match=hashes):
        install(fresh, archive)
    assert not fresh.is_complete()


def test_an_environment_with_a_module_that_does_not_load_is_not_complete(host: Path, archive: Path) -> None:
    broken = environment(host, archive)
    with pytest.raises(ValueError, match="No module named 'no_such_module'"):
        install(broken, archive, "no_such_module")
    assert not broken.is_complete()
    assert broken.link and not broken.link.exists()


def test_too_little_space_is_reported(host: Path, archive: Path, tmp_path: Path) -> None:
    fresh = environment(host, archive)
    assert fresh.lacking_space(tmp_path) == ""
    fresh.wheels["environment_bytes"] = shutil.disk_usage(tmp_path).free
    assert "GB free" in fresh.lacking_space(tmp_path)
    assert str(tmp_path) in fresh.lacking_space(tmp_path)
