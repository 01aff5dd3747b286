from pathlib import Path

import pytest
from ansible import constants

from plugins.lookup import project_path
from plugins.lookup.project_path import LookupModule
from tests.repository import ROOT


@pytest.mark.parametrize("used", ["ansible.cfg", "other.cfg"])
def test_paths_of_a_project_are_beside_its_ansible_cfg(used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "CONFIG_FILE", f"/srv/{used}")
    assert LookupModule().run(["runs", ".state"]) == ["/srv/runs", "/srv/.state"]


@pytest.mark.parametrize("used", [None, "/etc/ansible/ansible.cfg", "/home/ada/.ansible.cfg"])
def test_without_a_project_configuration_paths_are_in_the_clone_or_the_current_folder(
    used: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr(constants, "CONFIG_FILE", used)
    monkeypatch.chdir(tmp_path)
    assert LookupModule().run(["runs"]) == [f"{ROOT}/runs"]
    installed = tmp_path / "ansible_collections" / "psfleet" / "cluster"
    installed.mkdir(parents=True)
    monkeypatch.setattr(project_path, "COLLECTION", installed)
    assert LookupModule().run(["runs"]) == [f"{tmp_path}/runs"]


def test_each_inventory_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "CONFIG_FILE", "/srv/ansible.cfg")
    monkeypatch.chdir(tmp_path)

    def folder(*sources: str) -> str:
        (path,) = LookupModule().run([".state"], {"ansible_inventory_sources": sources}, of_inventory=True)
        return path

    assert folder("lab/hosts.yml").startswith("/srv/.state/hosts-")
    assert folder("lab/hosts.yml") == folder(f"{tmp_path}/lab/../lab/hosts.yml")
    others = [("lab/hosts.yml",), ("lab2/hosts.yml",), ("lab", "2/hosts.yml"), ("lab/hosts.yml", "lab")]
    assert len({folder(*sources) for sources in others}) == len(others)
