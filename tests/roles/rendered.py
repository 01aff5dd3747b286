"""The files that a role writes to a host, rendered by Ansible itself from the role's own tasks."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from jinja2 import Environment

from tests.repository import HERE, ROOT, played, written_play
from trainer.contract.plan import ClusterPlan, PlannedTask
from trainer.host.wording import grouped

ENVIRONMENT = "cpu-python3.11-x86_64"
# Two tasks here, and one there.
PLAN = ClusterPlan(
    "lab",
    (
        PlannedTask("ps", 0, "here", "10.0.0.1", 2222),
        PlannedTask("worker", 0, "here", "10.0.0.1", 2223),
        PlannedTask("worker", 1, "there", "[fd00::2]", 2222, (3,)),
    ),
)
PATHS = {
    "configuration_directory": "/etc/psfleet",
    "install_directory": "/opt/psfleet",
    "state_directory": "/var/lib/psfleet",
    "log_directory": "/var/log/psfleet",
}
SIGNED = {
    "authorities": {"user": "ssh-ed25519 USERS", "host": "ssh-ed25519 HOSTS"},
    "certificates": {"here": {"host": "host certificate", "user": "user certificate"}},
    "revoked": "bm9uZQ==",
    "ports": {"here": 22, "there": 2022},
}

_CHARACTERS = [*map(chr, range(32, 127)), "é", "東", "\U0001f600"]
_PAIRS = [f"{first}{second}" for first in "\\\"'$x" for second in _CHARACTERS]
# Variables of the inventory for all tasks, with every character, and with all pairs that systemd may unquote.
TRAINER_ENVIRONMENT = {
    "SAID": "a \"b\" 'c' \\d $e %f",
    **{f"V{number}": f"{pair}-{pair}" for number, pair in enumerate([*_CHARACTERS, *_PAIRS])},
    **{"LAST": "a\\", "QUOTED": '"x"', "JSON": json.dumps({"a": ["b'", "\\"]}), "BLANKS": "  x  "},
}


def trainer_files() -> dict[str, str]:
    """Return what `files_of` returns of the role trainer if it writes all files, with TRAINER_ENVIRONMENT."""
    return files_of(
        "trainer",
        trainer_metrics_directory="/var/lib/textfiles",
        trainer_environment=TRAINER_ENVIRONMENT,
    )


def files_of(
    role: str,
    plan: ClusterPlan = PLAN,
    install: str = "/opt/psfleet",
    environment: str = ENVIRONMENT,
    **variables: object,
) -> dict[str, str]:
    """Return the content of each file that a role writes by the module `files` to the host `here`.

    `variables` are those of roles, other than their defaults, and what earlier tasks have registered.
    """
    asked = {"plan": plan.to_json(), "install": install, "environment": environment, "variables": variables}
    given = json.dumps(asked, sort_keys=True)
    return dict(_rendered(role, given))


def template_of(role: str, name: str, **variables: object) -> str:
    """Return a template of a role for which these variables and the paths of the cluster are enough."""
    template = Environment(keep_trailing_newline=True, trim_blocks=True, autoescape=False).from_string(
        (ROOT / "roles" / role / "templates" / name).read_text()
    )
    return template.render(cluster_paths=PATHS, **variables)


@cache
def _rendered(role: str, given: str) -> Mapping[str, str]:
    asked = json.loads(given)
    plan = ClusterPlan.from_json(asked["plan"])
    tasks = yaml.safe_load((ROOT / "roles" / role / "tasks" / "main.yml").read_text())
    (task,) = (task for task in tasks if "psfleet.cluster.files" in task)
    shown = {
        "name": "Show the files",
        "ansible.builtin.copy": {"content": "{{ made.diff | to_json }}", "dest": "{{ playbook_dir }}/made"},
    }
    with TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("templates", "files"):
            if (ROOT / "roles" / role / part).is_dir():
                (folder / part).symlink_to(ROOT / "roles" / role / part)
        written = {**task, "check_mode": True, "diff": True, "register": "made"}
        values = {**_facts(plan, asked), "role_path": str(ROOT / "roles" / role)}
        (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": {"here": {}}, "vars": values}}))
        (folder / "given.json").write_text(json.dumps(asked["variables"]))
        defaults = [
            str(file) for part in ("defaults", "vars") for file in ROOT.glob(f"roles/*/{part}/main.yml")
        ]
        facts = {
            "ansible.builtin.set_fact": {
                "psfleet_requirements": _requirements(asked["environment"]),
                "cacheable": True,
            }
        }
        play = written_play(folder, facts, written, shown, vars_files=defaults)
        done = played(play, "-i", folder / "hosts.json", *HERE, "-e", f"@{folder}/given.json")
        assert done.returncode == 0, done.stdout + done.stderr
        differences: list[dict[str, Any]] = json.loads((folder / "made").read_text())
    return {
        each["before_header"]: each["after"]
        for each in differences
        if not each["after_header"].endswith(f"({each['after']})")  # a directory
    }


def _requirements(environment: str) -> dict[str, Any]:
    system = {"sshd_service": "ssh.service", "sshd_directory": "/etc/ssh/sshd_config.d"}
    return {"environment": environment, "python": "/usr/bin/python3.11", "system": system}


def _facts(plan: ClusterPlan, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of every play, and what earlier tasks of a deployment have registered."""
    return {
        "cluster_plan": {**plan.to_json(), "ps_hosts": plan.ps_hosts, "worker_hosts": plan.worker_hosts},
        "cluster_tasks": grouped((task.host, task.to_json()) for task in plan.tasks),
        "cluster_paths": PATHS | {"install_directory": asked["install"]},
        "cluster_programs": [],
        "cluster_data": {"source": "", "models": [], "directories": {}, "tables": {}},
        "cluster_mesh": {},
        "cluster_systems": {},
        "cluster_release": "0" * 12,
        "cluster_person": "ana@desk",
        "__package_store_wheels": {
            "environments": {asked["environment"]: {"lock_hash": "1" * 12, "program": {}}}
        },
        "__ssh_mesh_signed": SIGNED,
    }
