"""Removes everything that psfleet's playbooks have left on one host, in one round trip.

It examines what exists, not what a deployment recorded. So it also finishes an interrupted removal. While a
task of a run is alive, it fails and changes nothing. Files that psfleet did not make stay, and are named.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_reset
short_description: Removes everything that psfleet's playbooks have left on one host, in one round trip
description:
  - It examines what exists, not what a deployment recorded. So it also finishes an interrupted removal.
  - While a task of a run is alive, it fails and changes nothing.
  - Files that psfleet did not make stay, and are named.
author: psfleet (@psfleet)
options:
  host:
    description: The host's name, for messages.
    type: str
    required: true
  paths:
    description: The fact V(cluster_paths).
    type: dict
    required: true
  data_directory:
    description: The directory to which deploy.yml carries data.
    type: path
    required: true
  runs:
    description: Whether to remove runs, too.
    type: bool
    default: false
  data:
    description: Whether to remove carried data, too.
    type: bool
    default: false
  systems:
    description: The fact V(cluster_systems).
    type: dict
    required: true
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: Remove psfleet from the host, with its runs
  psfleet.cluster.host_reset:
    host: "{{ inventory_hostname }}"
    paths: "{{ cluster_paths }}"
    data_directory: /opt/psfleet/data
    systems: "{{ cluster_systems }}"
    runs: true
"""

RETURN = r"""
removed:
  returned: always
  type: list
  description: What is removed, in words; a folder is removed with its content.
  elements: str
stays:
  returned: always
  type: list
  description: What stays, and why.
  elements: str
"""

import grp
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.accounts import is_ours
from ..module_utils.carried_record import CarriedRecord
from ..module_utils.ended_account import end_all
from ..module_utils.facts.host_facts import read_distribution, run_program
from ..module_utils.host.task_traces import run_file, run_id_of
from ..module_utils.host.task_units import is_alive, parse_list, show_units, systemctl, task_of
from ..module_utils.host.wording import first_of, grouped
from ..module_utils.host_places import SSHD_FILE, HostPlaces, Removal, give_to_root, is_our_unit
from ..module_utils.module import make_module
from ..module_utils.network.fence_state import live_table, remove_table
from ..module_utils.people import begun_by
from ..module_utils.systems import Systems, read_systems
from ..module_utils.tasks.metrics_timer import WANTED, MetricsTimer

ARGUMENTS: dict[str, Any] = {
    "host": {"required": True},
    "paths": {"type": "dict", "required": True},
    "data_directory": {"type": "path", "required": True},
    "runs": {"type": "bool", "default": False},
    "data": {"type": "bool", "default": False},
    "systems": {"type": "dict", "required": True},
}


FENCE = "psfleet-fence.service"
SECONDS_TO_ANSWER = 60
PATHS_SHOWN = 3


class Account(NamedTuple):
    """An account that psfleet made: its name, its uid and its gid."""

    name: str
    user: int
    group: int


def read_accounts(passwd: Path) -> list[Account]:
    """Return the accounts in the file `passwd` (/etc/passwd) that psfleet made, whatever their names are.

    An account that shares its uid with another account is left out, because removing it would also end the
    processes of the other account; so is one with the uid 0.
    """
    lines = [line.split(":") for line in passwd.read_text(encoding="utf-8", errors="replace").splitlines()]
    entries = [fields for fields in lines if len(fields) == 7]
    numbers = [fields[2] for fields in entries]
    return [
        Account(name, int(user), int(group))
        for name, _, user, group, comment, *_ in entries
        if is_ours(comment) and int(user) and numbers.count(user) == 1
    ]


def alive_tasks(units: Mapping[str, Mapping[str, str]], configuration: Path) -> str:
    """Return, in words, which tasks are alive, of which run, and who began it; "" if none is alive.

    `units` is {unit: its properties}; `configuration` is the configuration directory.

    Example of a result: "ps0, worker0 of run r1, begun by ada@laptop, 2026-03-01 12:00 UTC"
    """
    tasks = [task for unit, values in units.items() if is_alive(values) and (task := task_of(unit))]
    runs = {file: run_id for task in tasks if (run_id := run_id_of(file := run_file(configuration, *task)))}
    began = sorted({begun for file, run_id in runs.items() if (begun := begun_by(file, run_id))})
    by = f", begun by {' or '.join(began)}" if began else ""
    names = ", ".join(f"{job}{index}" for job, index in sorted(tasks))
    return f"{names} of run {', '.join(sorted({*runs.values()}))}{by}" if runs else names


class HostReset:
    """What psfleet has left on a host when this object is created.

    `owner` is the uid that owns runs that stay, 0 if no run stays, or if root owns them. Making the object
    changes nothing; it raises ValueError and OSError.
    """

    def __init__(self, places: HostPlaces, systems: Systems) -> None:
        self.places = places
        self.removal: Removal = places.removal()
        self.carried: list[CarriedRecord] = places.carried_records
        self.units = self._loaded()
        self.accounts = read_accounts(places.root / "etc/passwd")
        self.fenced = bool(live_table())
        record = places.path("configuration_directory", "metrics_directory")
        self.metrics = MetricsTimer("", record, systemctl, places.root / WANTED.relative_to("/"))
        # Runs belong to the tasks' user and group. The user's number may be someone else's one day.
        runs = places.staying_runs
        statuses = [path.lstat() for path in (runs, *runs.iterdir())] if runs else []
        self.system = systems.of(read_distribution(places.root))
        self.owner = max((each.st_uid for each in statuses if each.st_gid == statuses[0].st_gid), default=0)

    def _loaded(self) -> dict[str, dict[str, str]]:
        printed = systemctl("list-units", "--all", "--plain", "--no-legend", "psfleet*")
        if not (names := list(filter(is_our_unit, parse_list(printed)))):
            return {}
        return dict(zip(names, show_units(names, ("ActiveState", "Job")), strict=True))

    @property
    def running_or_failed(self) -> list[str]:
        """The names of psfleet's units that are alive or have failed."""
        return [
            unit
            for unit, values in self.units.items()
            if is_alive(values) or values["ActiveState"] == "failed"
        ]

    @property
    def removed(self) -> list[str]:
        """What is to be removed from the host, in words; [] if there is nothing. `remove` removes it."""
        metrics = f"metrics in {self.metrics.written_to or 'no folder'}"
        return [
            *(f"user {account.name}" for account in self.accounts),
            *(["table inet psfleet of nftables"] if self.fenced else []),
            *([] if self.metrics.is_fulfilled() else [metrics]),
            *map(str, self.removal.outermost),
            *(f"data in {record.directory}" for record in self.carried if self.places.removes_data),
            *([f"the tasks' rights in {self.places.staying_runs}"] if self.owner else []),
            *(f"{unit}, which runs or has failed" for unit in self.running_or_failed),
        ]

    @property
    def stays(self) -> list[str]:
        """What `remove` leaves on the host, each as "path (why)"; [] if nothing stays."""
        runs = self.places.staying_runs
        staying = [f"{runs} (host_reset_runs: true removes them)"] if runs else []
        if not self.places.removes_data:
            staying += [f"{record.directory} (host_reset_data: true removes them)" for record in self.carried]
        return [*staying, *(f"{path} (not psfleet's)" for path in self.removal.foreign)]

    def remove(self) -> None:
        """Remove everything that `removed` lists; steps that may be refused come first.

        Raises ValueError and OSError.
        """
        if self.system:  # without one nothing was deployed
            directory = self.places.root / self.system.sshd_directory.lstrip("/")
            remove_sshd_file(directory / SSHD_FILE, self.system.sshd_service)
        if not self.metrics.is_fulfilled():
            self.metrics.apply()
        if beside := [unit for unit in self.units if unit != FENCE]:
            systemctl("stop", *beside)
        self._remove_accounts()
        self._remove_files()
        systemctl("stop", FENCE)
        systemctl("daemon-reload")
        if self.units:  # without names, this would reset all units
            systemctl("reset-failed", *self.units)
        remove_table()

    def _remove_accounts(self) -> None:
        groups = {account.group for account in self.accounts}
        for folder in map(self.places.path, ("state_directory", "log_directory")):
            if folder.is_dir() and folder.stat().st_gid in groups:
                os.chown(folder, 0, 0)
        for account in self.accounts:
            remove_account(account)

    def _remove_files(self) -> None:
        runs = self.places.staying_runs
        if runs and self.owner:  # this user has no processes any more
            give_to_root(runs, self.owner)
        for record in self.carried if self.places.removes_data else []:
            record.remove_carried(list(record.files))
        self.removal.remove()
        self.places.removal().remove()  # the folders where data were


def in_short(removed: Sequence[str]) -> list[str]:
    """Return the texts in `removed`, but only one text for a folder with more than PATHS_SHOWN paths.

    Example: "/etc/psfleet: a, b, c and 2 more"
    """
    places = grouped(line.rpartition("/")[::2] if line.startswith("/") else (line, "") for line in removed)
    return [
        text
        for folder, names in places.items()
        for text in (
            [f"{folder}: {first_of(names, PATHS_SHOWN)}"]
            if len(names) > PATHS_SHOWN
            else [f"{folder}/{name}" if name else folder for name in names]
        )
    ]


def remove_sshd_file(file: Path, service: str) -> None:
    """Make sshd read its configuration without this file, and remove the file; do nothing if it is missing.

    Raises ValueError if sshd rejects the configuration without it; then the file stays. Until sshd has read
    it, the file exists under another name, so that an interrupted removal can be repeated.
    """
    aside = file.with_name(f".{file.name}.aside")
    with suppress(FileNotFoundError):
        file.rename(aside)
    if not aside.exists():
        return
    if systemctl("show", "--property=ActiveState", "--value", service).strip() == "active":
        status, _, complaint = run_program(["sshd", "-t"], SECONDS_TO_ANSWER)
        if status:
            aside.rename(file)
            what = f"sshd rejects its configuration without {file}: {complaint.strip()}"
            raise ValueError(f"{what}. Nothing was changed: fix what it names, then try again")
        call("systemctl", "reload", service)
    aside.unlink()


def remove_account(account: Account) -> None:
    """Remove an account, its processes, and its group even if the group has other members.

    Raises ValueError if a process does not end, or a command fails.
    """
    with suppress(KeyError):  # userdel would leave a group that has other members
        group = grp.getgrgid(account.group)
        if group.gr_name == account.name and group.gr_mem:
            call("gpasswd", "--members", "", account.name)
    end_all(account.name, account.user)
    call("userdel", account.name)


def call(*command: str) -> None:
    """Run a command. Raises ValueError with its standard error if it fails."""
    status, _, complaint = run_program(command, SECONDS_TO_ANSWER)
    if status:
        raise ValueError(f"{' '.join(command)}: {complaint.strip()}")


def run(module: AnsibleModule) -> None:
    """Remove psfleet from the host, and exit with the answer.

    If a task is alive, the module fails, and nothing is removed. In check mode, the answer has what would be
    removed.
    """
    values = module.params
    places = HostPlaces(values["paths"], Path(values["data_directory"]), values["runs"], values["data"])
    try:
        systems = read_systems(values["systems"])
        places.sshd_directories = {system.sshd_directory for system in systems.known.values()}
        before = after = HostReset(places, systems)
        if alive := alive_tasks(before.units, places.path("configuration_directory")):
            module.fail_json(
                msg=f"{alive}: alive on {values['host']}. Nothing was removed. Wait for the run's end, or "
                "end it first: `ansible-playbook stop.yml`"
            )
        if before.removed and not module.check_mode:
            before.remove()
            after = HostReset(places, systems)
            if after.removed:
                module.fail_json(msg=f"{values['host']} still has {', '.join(after.removed)}: try again")
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"psfleet could not be removed from {values['host']}: {error}")
    difference = "".join(f"{line}\n" for line in before.removed)
    module.exit_json(
        changed=bool(before.removed),
        removed=in_short(before.removed),
        stays=after.stays,
        diff={"before": difference, "after": ""},
    )


def main() -> None:
    """Run the module with the arguments from Ansible; exit with its answer, or with a failure."""
    run(make_module(ARGUMENTS))


if __name__ == "__main__":
    main()
