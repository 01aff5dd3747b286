from pathlib import Path

import pytest
from ansible import constants

from plugins.lookup.project_path import LookupModule


@pytest.mark.parametrize("used", ["ansible.cfg", "other.cfg"])
def test_what_people_keep_lies_beside_their_ansible_cfg(used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "CONFIG_FILE", f"/srv/{used}")
    assert LookupModule().run(["runs", ".state"]) == ["/srv/runs", "/srv/.state"]


@pytest.mark.parametrize("used", [None, "/etc/ansible/ansible.cfg", "/home/ada/.ansible.cfg"])
def test_without_one_of_the_project_it_lies_where_people_are(
    used: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr(constants, "CONFIG_FILE", used)
    monkeypatch.chdir(tmp_path)
    assert LookupModule().run(["runs"]) == [f"{tmp_path}/runs"]
