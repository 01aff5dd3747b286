"""The action without downloads: its changes, and the caches that it refuses."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from plugins.action import wheel_store
from psfleet.carry.wheel_stores import WheelStore
from psfleet.inventory.program_requirements import ProgramRequirements
from tests.plugins.modules.module_run import action_of
from tests.psfleet.carry.made_wheels import make_package
from tests.repository import ROOT

CPU = "cpu-python3.11-x86_64"


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the arguments for a program that requires a package of an index made here."""
    make_package(tmp_path / "index", "plots")
    for name, version in (
        ("tensorflow_cpu", "2.21.0"),
        ("tensorflow_cpu", "2.15.1"),
        ("tensorflow", "2.15.1"),
    ):
        make_package(tmp_path / "index", name, version)
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "an index without packages").as_uri())
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)

    def filled(store: WheelStore, _say: object) -> None:
        store.folder.mkdir(parents=True)
        for suffix in (".tar", ".sha256", ".environment_bytes"):
            store.archive.with_suffix(suffix).write_text("1")

    monkeypatch.setattr(WheelStore, "fill", filled)
    file = tmp_path / "requirements.txt"
    file.write_text("plots\n")
    return {
        "hosts": [{"environment": CPU, "programs": {ProgramRequirements.read(file).key: CPU}}],
        "locks": ROOT / "roles" / "package_store" / "files",
        "cache_directory": str(tmp_path / "cache"),
        "programs": [{"file": str(file)}],
    }


def deployed(arguments: dict[str, Any], *, check: bool = False) -> dict[str, Any]:
    answer: dict[str, Any] = action_of(wheel_store.ActionModule, check=check)._act(arguments)
    return answer


def test_a_lock_is_written_only_outside_check_mode_and_counts_as_a_change(
    arguments: dict[str, Any], tmp_path: Path
) -> None:
    lock = tmp_path / f"requirements.{CPU}.psfleet.lock"
    checked = deployed(arguments, check=True)
    assert (checked["changed"], lock.exists()) == (True, False)
    made = deployed(arguments)
    assert (made["changed"], lock.exists()) == (True, True)
    (program,), (planned,) = (each["programs"].values() for each in (made, checked))
    assert program["lock_hash"] == planned["lock_hash"] != made["environments"][CPU]["lock_hash"]
    assert program["base"] == made["environments"][CPU]["lock_hash"]
    assert deployed(arguments) == made | {"changed": False}
    lock.unlink()
    assert deployed(arguments, check=True)["changed"]
    assert deployed(arguments) == made
    assert deployed(arguments | {"programs": []})["programs"] == {}


def test_each_program_has_its_environment_on_each_kind_of_host(
    arguments: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "older.txt").write_text("tensorflow==2.15.1\n")
    (tmp_path / "more.txt").write_text("tensorflow==2.15.1\nplots\n")
    older, more = (ProgramRequirements.read(tmp_path / f"{name}.txt").key for name in ("older", "more"))
    names = [f"{CPU}-tensorflow2.15.1", "gpu-python3.10-x86_64-tensorflow2.15.1"]
    hosts = [
        {"environment": own, "programs": dict.fromkeys((older, more), name)}
        for own, name in zip((CPU, "gpu-python3.12-x86_64"), names, strict=True)
    ]
    files = [{"file": str(tmp_path / f"{name}.txt")} for name in ("older", "more")]
    programs = deployed(arguments | {"hosts": hosts, "programs": files})["programs"]
    assert sorted(programs) == sorted(f"{key}/{name}" for key in (older, more) for name in names)
    first, second = (programs[f"{key}/{names[0]}"] for key in (older, more))
    assert (first["base"], second["base"], first["python_version"]) == ("", first["lock_hash"], "3.11")
    assert programs[f"{older}/{names[1]}"]["python_version"] == "3.10"


def test_no_archive_is_made_for_an_environment_that_all_hosts_have(
    arguments: dict[str, Any], tmp_path: Path
) -> None:
    made = deployed(arguments)
    names = [each["lock_hash"] for each in (*made["environments"].values(), *made["programs"].values())]
    shutil.rmtree(tmp_path / "cache" / "wheels")
    having = deployed(arguments | {"installed": [names]})
    assert not having["changed"]
    assert not list((tmp_path / "cache").glob("wheels/*/*.tar"))
    assert [each["lock_hash"] for each in having["programs"].values()] == names[1:]
    lacking = deployed(arguments | {"installed": [names[:1]]})
    (program,) = lacking["programs"].values()
    assert (lacking["changed"], program["base"]) == (True, names[0])
    assert [Path(program["archive"])] == list((tmp_path / "cache").glob("wheels/*/*.tar"))


@pytest.mark.parametrize(
    "name", ["", CPU, f"{CPU}-tensorflow2.16.2", "gpu-python3.11-x86_64-tensorflow2.15.1"]
)
def test_a_host_that_names_an_environment_which_does_not_fit_is_refused(
    arguments: dict[str, Any], tmp_path: Path, name: str
) -> None:
    file = tmp_path / "older.txt"
    file.write_text("tensorflow==2.15.1\n")
    hosts = [{"environment": CPU, "programs": {ProgramRequirements.read(file).key: name}}]
    asked = {"hosts": hosts, "programs": [{"file": str(file)}]}
    with pytest.raises(AnsibleActionFail, match=r"which does not fit|is no environment"):
        deployed(arguments | asked)


@pytest.mark.parametrize(
    ("environments", "fits", "filled"),
    [
        ([CPU, CPU, "cpu-python3.13-x86_64"], True, [CPU]),
        ([CPU, CPU], False, []),
        (["gpu-python3.11-x86_64"] * 2, True, []),
    ],
)
def test_an_environment_of_several_hosts_is_filled_on_the_controller_if_possible(
    arguments: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    environments: list[str],
    fits: bool,
    filled: list[str],
) -> None:
    found: list[str] = []

    def fill(store: WheelStore, _say: object) -> None:
        found.append(store.environment.name)
        for name in (store.packed_environment, store.packed_environment.with_suffix(".sha256")):
            name.write_text("zst")
        store.packed_environment.with_suffix(".environment_bytes").write_text("7")

    monkeypatch.setattr(WheelStore, "fill_environment", fill)
    monkeypatch.setattr(wheel_store, "can_fill", lambda _environment: fits)
    asked = arguments | {"hosts": [{"environment": name} for name in environments], "programs": []}
    deployed(asked, check=True)
    assert found == []
    described = deployed(asked)["environments"]
    assert found == filled
    assert [name for name, each in described.items() if each["filled"]] == filled
    assert {each["environment_bytes"] for name, each in described.items() if name in filled} <= {7}
    assert not deployed(asked)["changed"]
    assert found == filled


def test_a_cache_that_others_can_write_is_refused(arguments: dict[str, Any], tmp_path: Path) -> None:
    deployed(arguments)
    (tmp_path / "cache" / "wheels").chmod(0o777)
    with pytest.raises(AnsibleActionFail, match=f"{tmp_path}/cache/wheels has mode 0777 and is root's"):
        deployed(arguments, check=True)
