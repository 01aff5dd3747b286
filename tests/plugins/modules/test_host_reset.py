"""The removal of psfleet from a host, with a systemd and accounts that record their commands."""

import grp
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from plugins.module_utils.accounts import COMMENTS
from plugins.module_utils.host.task_units import parse_show
from plugins.module_utils.host_places import HostPlaces
from plugins.modules import host_reset as module
from tests.plugins.module_utils.described import DESCRIBED
from tests.plugins.module_utils.test_host_places import carry, left, made, places
from tests.plugins.modules.module_run import module_answer
from tests.repository import ROOT

OTHERS = "root:x:0:0:root:/root:/bin/bash\nalice:x:1000:1000:psfleet fan,,,:/home/alice:/bin/bash\n"
OURS = (
    "psfleet:x:54321:54321:psfleet trainer:/var/lib/psfleet:/usr/sbin/nologin\n"
    "psfleet-ssh:x:54322:54322:psfleet login:/etc/psfleet/ssh:/bin/sh\n"
)
SSHD = "etc/ssh/sshd_config.d/50-psfleet.conf"


class Host:
    """A host below a folder, which commands change as they would change a real one."""

    def __init__(self, root: Path) -> None:
        self.root, self.told = root, list[str]()
        self.units = {"psfleet-fence.service": "active", "psfleet-tensorboard.service": "active"}
        self.table, self.sshd_objects, self.userdel_objects = "table inet psfleet", "", ""
        made(root, "etc/passwd")

    @property
    def passwd(self) -> Path:
        """The file of the accounts."""
        return self.root / "etc/passwd"

    def systemctl(self, verb: str, *arguments: str) -> str:
        """Act as systemctl."""
        named = [name for name in arguments if not name.startswith("-")]
        self.told.append(" ".join([verb, *named]))
        if verb == "list-units":
            return "".join(f"{unit} loaded {state}\n" for unit, state in self.units.items())
        if "--value" in arguments:
            return "active\n" if named == ["ssh"] else "inactive\n"
        if verb == "show":
            return "\n\n".join(f"ActiveState={self.units.get(unit, 'inactive')}\nJob=0" for unit in named)
        for unit in named:
            if verb == "stop" and unit in self.units:
                self.units[unit] = "failed" if "tensorboard" in unit else "inactive"
            if verb == "reset-failed":
                self.units.pop(unit)
        return ""

    def show_units(self, units: Sequence[str], _properties: Sequence[str]) -> list[dict[str, str]]:
        """Tell of units as systemd does."""
        return parse_show(self.systemctl("show", *units))

    def run_program(self, command: Sequence[str], _seconds: float) -> tuple[int, str, str]:
        """Act as another program."""
        self.told.append(" ".join(command))
        if command[0] == "sshd":
            return bool(self.sshd_objects), "", self.sshd_objects
        if command[0] == "userdel":
            if self.userdel_objects:
                return 8, "", self.userdel_objects
            lines = self.passwd.read_text().splitlines(keepends=True)
            self.passwd.write_text("".join(line for line in lines if not line.startswith(f"{command[1]}:")))
        return 0, "", ""

    def remove_table(self) -> None:
        """Take the table away."""
        self.table = ""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path)
    for name in ("systemctl", "show_units", "run_program", "remove_table"):
        monkeypatch.setattr(module, name, getattr(host, name))
    monkeypatch.setattr(module, "live_table", lambda: host.table)
    monkeypatch.setattr(module, "HostPlaces", partial(HostPlaces, root=tmp_path))
    # Its effect on processes is tested in test_ended_account.py.
    monkeypatch.setattr(module, "end_all", lambda name, user: host.told.append(f"end all of {name}, {user}"))
    return host


def deployed(host: Host) -> None:
    host.passwd.write_text(OTHERS + OURS)
    (host.root / "etc/os-release").write_text("ID=debian\nVERSION_ID=12\n")
    made(host.root, SSHD, "etc/psfleet/plan.json", "opt/psfleet/current", "var/log/psfleet/night-1/ps0.out")
    made(host.root, "var/lib/psfleet/runs/night-1/x", "etc/systemd/system/psfleet-ps@.service")
    made(host.root, "prometheus/psfleet.prom", "prometheus/apt.prom")
    (host.root / "etc/psfleet/metrics_directory").write_text(f"{host.root}/prometheus\n")
    if os.geteuid() == 0:
        os.chown(host.root / "var/lib/psfleet", 0, 54321)
        os.chown(host.root / "var/lib/psfleet/runs", 0, 54321)
        for run in (host.root / "var/lib/psfleet/runs").iterdir():
            os.chown(run, 54321, 54321)


def reset(root: Path, *, check: bool = False, **asked: bool) -> dict[str, Any]:
    some = places(root)
    directory = str(some.data_directory)
    told = {"host": "n1", "systems": DESCRIBED, "paths": some.paths, "data_directory": directory}
    return module_answer(module, check=check, **told, **asked)


def test_many_paths_of_a_folder_are_abbreviated() -> None:
    units = [f"/etc/systemd/system/psfleet-{unit}.service" for unit in "abcde"]
    removed = ["user psfleet", *units, "/etc/psfleet", "data in /opt/data"]
    assert module.in_short(removed) == [
        "user psfleet",
        "/etc/systemd/system: psfleet-a.service, psfleet-b.service, psfleet-c.service and 2 more",
        *removed[-2:],
    ]
    assert module.in_short(units[:3]) == units[:3]


def test_a_reset_removes_once_what_check_mode_has_listed(host: Host) -> None:
    deployed(host)
    before = left(host.root)
    looked = reset(host.root, check=True)
    assert left(host.root) == before
    assert {told.split()[0] for told in host.told} == {"list-units", "show"}
    taken = reset(host.root)
    assert (looked["changed"], looked["removed"]) == (True, taken["removed"])
    assert {line.replace(str(host.root), "") for line in taken["removed"]} >= {
        *("user psfleet", "user psfleet-ssh", "table inet psfleet of nftables", f"/{SSHD}"),
        *("/etc/psfleet", "/opt/psfleet", "/var/log/psfleet", "metrics in /prometheus"),
        "psfleet-tensorboard.service, which runs or has failed",
    }
    runs = host.root / "var/lib/psfleet/runs"
    assert taken["stays"] == [f"{runs} (host_reset_runs: true removes them)"]
    assert taken["diff"]["before"].splitlines() == taken["removed"]
    assert left(host.root) == {
        *("etc/passwd", "etc/os-release", "prometheus/apt.prom"),
        "var/lib/psfleet/runs/night-1/x",
    }
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (runs, runs.parent)} == {
        (os.geteuid(), os.getegid())
    }
    assert host.passwd.read_text() == OTHERS
    assert (host.units, host.table) == ({}, "")
    # Sshd is reloaded first, and the fence stops last.
    told = [line for line in host.told if line.split()[0] in {"systemctl", "stop", "reset-failed", "userdel"}]
    assert told == [
        "systemctl reload ssh",
        "stop psfleet-tensorboard.service",
        "userdel psfleet",
        "userdel psfleet-ssh",
        "stop psfleet-fence.service",
        "reset-failed psfleet-fence.service psfleet-tensorboard.service",
    ]
    again = reset(host.root)
    assert (again["changed"], again["removed"], again["stays"]) == (False, [], taken["stays"])
    assert reset(host.root, runs=True)["changed"]
    assert not runs.parent.exists()


def test_a_reset_of_a_host_without_psfleet_changes_nothing(host: Host) -> None:
    host.passwd.write_text(OTHERS)
    host.units, host.table = {}, ""
    answer = reset(host.root)
    assert (answer["changed"], answer["removed"], answer["stays"]) == (False, [], [])
    assert host.told == ["list-units psfleet*"]


def test_requested_data_are_removed_with_their_folder_and_no_failed_unit_is_reset(host: Host) -> None:
    host.passwd.write_text(OTHERS)
    host.units, host.table = {}, ""
    install = host.root / "opt/psfleet"
    carry(install / "data", install / "carried")
    kept = [f"{install / 'data'} (host_reset_data: true removes them)"]
    answer = reset(host.root)
    assert (answer["changed"], answer["stays"]) == (False, kept)
    assert reset(host.root, data=True)["removed"] == [str(install), f"data in {install / 'data'}"]
    assert not install.exists()
    assert "reset-failed" not in host.told


@pytest.mark.parametrize("step", ["remove_sshd_file", "remove_account", "give_to_root", "remove_table"])
def test_an_interrupted_reset_is_finished_by_the_next_one(
    host: Host, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    deployed(host)
    with monkeypatch.context() as broken:
        broken.setattr(module, step, lambda *_: (_ for _ in ()).throw(OSError("the power")))
        assert reset(host.root)["msg"] == "psfleet could not be removed from n1: the power"
    assert reset(host.root)["changed"]
    assert not reset(host.root)["changed"]
    assert host.passwd.read_text() == OTHERS


@pytest.mark.parametrize("check", [True, False])
def test_a_reset_is_refused_while_a_task_is_alive(host: Host, check: bool) -> None:
    deployed(host)
    host.units |= {"psfleet-worker@1.service": "activating", "psfleet-doctor@ps-0.service": "active"}
    made(host.root, "etc/psfleet/run/worker-1.env")
    (host.root / "etc/psfleet/run/worker-1.env").write_text('PSFLEET_RUN_ID="night-1"\n')
    before = left(host.root)
    answer = reset(host.root, check=check)
    assert answer["failed"]
    assert answer["msg"].startswith("worker1 of run night-1: alive on n1. Nothing was removed. Wait for")
    assert left(host.root) == before
    host.units["psfleet-worker@1.service"] = "failed"
    assert reset(host.root)["changed"]


def test_remaining_parts_after_a_reset_are_reported(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    deployed(host)
    monkeypatch.setattr(module, "remove_table", lambda: None)
    assert reset(host.root)["msg"] == "n1 still has table inet psfleet of nftables: try again"


def test_nothing_is_removed_if_sshd_rejects_its_configuration(host: Host) -> None:
    deployed(host)
    host.sshd_objects = "/etc/ssh/sshd_config line 3: Bad configuration option: X\n"
    before = left(host.root)
    said = reset(host.root)["msg"]
    assert said.startswith("psfleet could not be removed from n1: sshd rejects its configuration without")
    assert ": /etc/ssh/sshd_config line 3: Bad configuration option: X. Nothing was changed" in said
    assert left(host.root) == before
    host.sshd_objects = ""
    aside = host.root / SSHD
    aside.rename(aside.with_name(".50-psfleet.conf.aside"))  # as if it were interrupted before the reload
    assert reset(host.root)["changed"]
    assert host.told.count("systemctl reload ssh") == 1


def test_accounts_of_ssh_mesh_are_recognised_by_their_comment(tmp_path: Path) -> None:
    tasks = yaml.safe_load((ROOT / "roles/ssh_mesh/tasks/accounts.yml").read_text())
    accounts = [task["ansible.builtin.user"] for task in tasks if "ansible.builtin.user" in task]
    assert [account["comment"] for account in accounts] == [*COMMENTS]
    passwd = tmp_path / "passwd"
    lines = ["lab:x:998:997:psfleet trainer,,,:/:/x", "+::::::", "toor:x:0:0:psfleet trainer:/:/x", "broken"]
    passwd.write_text("\n".join([OTHERS.strip(), *lines]) + "\n")
    assert module.read_accounts(passwd) == [("lab", 998, 997)]
    passwd.write_text(passwd.read_text() + "twin:x:998:1:somebody:/:/x\n")
    assert module.read_accounts(passwd) == []
    passwd.write_text("toor:x:0:0:psfleet trainer:/:/x\n")
    assert module.read_accounts(passwd) == []


def test_an_account_is_removed_after_its_processes_are_ended(host: Host) -> None:
    host.passwd.write_text(OURS)
    module.remove_account(module.Account("psfleet", 54321, 54321))
    assert host.told == ["end all of psfleet, 54321", "userdel psfleet"]
    host.userdel_objects = "userdel: it is locked\n"
    with pytest.raises(ValueError, match="userdel psfleet-ssh: userdel: it is locked"):
        module.remove_account(module.Account("psfleet-ssh", 54322, 54322))


@pytest.mark.parametrize(
    ("name", "members", "emptied"),
    [("psfleet", ["alice"], True), ("psfleet", [], False), ("users", ["alice"], False)],
)
def test_the_members_of_an_accounts_own_group_are_removed_before_the_account(
    host: Host, monkeypatch: pytest.MonkeyPatch, name: str, members: list[str], emptied: bool
) -> None:
    monkeypatch.setattr("grp.getgrgid", lambda number: grp.struct_group((name, "x", number, members)))
    host.passwd.write_text(OURS)
    module.remove_account(module.Account("psfleet", 54321, 54321))
    assert host.told == [
        *["gpasswd --members  psfleet"] * emptied,
        *("end all of psfleet, 54321", "userdel psfleet"),
    ]
