"""The action without downloads: its changes, and the caches that it refuses."""

import os
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from plugins.action import wheel_store
from psfleet.carry.wheel_stores import WheelStore
from tests.plugins.modules.module_run import action_of
from tests.psfleet.carry.made_wheels import make_package
from tests.repository import ROOT

CPU = "cpu-python3.11-x86_64"


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the arguments for a program that requires a package of an index made here."""
    make_package(tmp_path / "index", "plots")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "an index without packages").as_uri())
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)

    def filled(store: WheelStore, _say: object) -> None:
        store.folder.mkdir(parents=True)
        for suffix in (".tar", ".sha256", ".environment_bytes"):
            store.archive.with_suffix(suffix).write_text("1")

    monkeypatch.setattr(WheelStore, "fill", filled)
    (tmp_path / "requirements.txt").write_text("plots\n")
    return {
        "environments": [CPU],
        "locks": ROOT / "roles" / "package_store" / "files",
        "cache_directory": str(tmp_path / "cache"),
        "program_requirements": [str(tmp_path / "requirements.txt")],
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
    program, planned = (each["environments"][CPU]["program"] for each in (made, checked))
    assert program["lock_hash"] == planned["lock_hash"] != ""
    assert deployed(arguments) == made | {"changed": False}
    lock.unlink()
    assert deployed(arguments, check=True)["changed"]
    assert deployed(arguments) == made
    assert deployed(arguments | {"program_requirements": []})["environments"][CPU]["program"] == {}


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
    asked = arguments | {"environments": environments, "program_requirements": []}
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
