"""What the role ssh_mesh tells a host."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psfleet.deployment.host import PROJECT, Arguments, Host
from psfleet.deployment.templates import rendered

_UNSIGNED = "# signed when the deployment is not a check"
_COMMANDS = PROJECT / "trainer" / "host" / "login_commands.py"


def look(host: Host) -> list[Arguments]:
    """Read the accounts and the keys of the host, and make nothing; for `ssh_identity`."""
    return [{**arguments, "make": False} for arguments in identity(host)]


def identity(host: Host) -> list[Arguments]:
    """Make the key of the login, and read it and the host's; for `ssh_identity`."""
    user, directory = host.values["ssh_mesh_user"], host.values["ssh_mesh_ca_directory"]
    return [
        {
            "home": _home(host),
            "user": user,
            "comment": f"{user}@{host.name}",
            "name": host.tasks[0]["address"],
            "accounts": {
                host.values["trainer_user"]: _account_of_tasks(host),
                user: _account_of_login(host),
            },
            "authority": {
                "directory": str(Path(directory).expanduser().resolve()),
                "cluster": host.cluster.plan["cluster_name"],
            },
        }
    ]


def account_of_tasks(host: Host) -> list[Arguments]:
    """Make the account that the tasks run as; for Ansible's module `user`."""
    return [_account(host.values["trainer_user"], "psfleet trainer", _account_of_tasks(host))]


def account_of_login(host: Host) -> list[Arguments]:
    """Make the account that logs in; for Ansible's module `user`."""
    return [_account(host.values["ssh_mesh_user"], "psfleet login", _account_of_login(host))]


def files(host: Host) -> list[Arguments]:
    """Give sshd and the login their certificates, and the names of the hosts; for `managed_files`."""
    user, home = host.values["ssh_mesh_user"], _home(host)
    return [
        {
            "directories": [
                {"path": host.cluster.paths["configuration_directory"]},
                {"path": home},
                {"path": f"{home}/.ssh", "group": user, "mode": "0750"},
            ],
            "files": [*_files_of_sshd(host), *_files_of_login(host)],
        }
    ]


def login(host: Host) -> list[Arguments]:
    """Prove that the user logs in without a question; for `ssh_login`."""
    system, user, home = host.requirements["system"], host.values["ssh_mesh_user"], _home(host)
    # The host logs in to itself, by its name in the cluster. That uses its certificates and its sshd, as a
    # login to another host does.
    ssh = ["ssh", "-n", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host.name, "hostname"]
    paths = [file["path"] for file in [*_files_of_sshd(host), *_files_of_login(host)]]
    return [
        {
            "service": system["sshd_service"],
            "directory": system["sshd_directory"],
            "login": ["runuser", "--user", user, "--", *ssh],
            # The names of the other hosts change with the inventory, but a login to this host does not
            # depend on them.
            "files": [path for path in paths if path != f"{home}/.ssh/config"],
            # Who may log in and do what. If any of these changes, processes of earlier logins are ended.
            "admits": [
                *(f"{home}/{name}" for name in ("user_ca.pub", "principals", "revoked.krl")),
                _configuration(host),
            ],
            "proven": f"{home}/proven",
            "user": user,
            "host": host.name,
            "port": host.signed["ports"][host.name],
        }
    ]


def _account_of_tasks(host: Host) -> dict[str, str]:
    # Whoever reaches a task's port can run code in it, so this account must not log in anywhere.
    return {"home": host.cluster.paths["state_directory"], "shell": "/usr/sbin/nologin"}


def _account_of_login(host: Host) -> dict[str, str]:
    return {"home": _home(host), "shell": "/bin/sh"}


def _account(name: str, comment: str, account: Mapping[str, str]) -> Arguments:
    of_system = {"system": True, "create_home": False, "password": "*"}
    return {"name": name, "comment": comment, **account, **of_system}


def _home(host: Host) -> str:
    """Return the home of the login. It belongs to root, and the login may read it."""
    return f"{host.cluster.paths['configuration_directory']}/ssh"


def _configuration(host: Host) -> str:
    return f"{host.requirements['system']['sshd_directory']}/50-psfleet.conf"


def _certificate(host: Host, kind: str) -> str:
    """Return the host's certificate of a kind, as the content of a file."""
    return f"{host.signed['certificates'][host.name].get(kind, _UNSIGNED)}\n"


def _files_of_sshd(host: Host) -> list[dict[str, Any]]:
    home, authorities = _home(host), host.signed["authorities"]
    # The command does not depend on the PATH that the host's sshd gives its logins.
    forced = [host.requirements["python"], "-I", "-S", f"{home}/login_commands.py"]
    forced += [f"{host.cluster.paths['install_directory']}/environments"]
    forced += ["shell"] if host.values["ssh_mesh_shell"] else []
    sshd = rendered("ssh_mesh/sshd.conf.j2", values=host.values, home=home, forced=forced)
    return [
        {"path": f"{home}/login_commands.py", "content": _COMMANDS.read_text(encoding="utf-8")},
        {"path": f"{home}/user_ca.pub", "content": f"{authorities.get('user', _UNSIGNED)}\n"},
        {"path": f"{home}/principals", "content": f"{host.cluster.plan['cluster_name']}\n"},
        {"path": f"{home}/revoked.krl", "content": host.signed["revoked"], "encoding": "base64"},
        {"path": f"{home}/host-cert.pub", "content": _certificate(host, "host")},
        {"path": _configuration(host), "content": sshd, "validate": ["sshd", "-t", "-f", "%s"]},
    ]


def _files_of_login(host: Host) -> list[dict[str, Any]]:
    home = f"{_home(host)}/.ssh"
    authority = host.signed["authorities"].get("host", _UNSIGNED)
    known_hosts = rendered("ssh_mesh/known_hosts.j2", authority=authority)
    return [
        {"path": f"{home}/id_ed25519-cert.pub", "content": _certificate(host, "user")},
        {"path": f"{home}/known_hosts", "content": known_hosts},
        {"path": f"{home}/config", "content": _client_configuration(host)},
    ]


def _client_configuration(host: Host) -> str:
    """Return the login's ssh configuration, with an entry for each host of the plan."""
    addresses = {task["host"]: task["address"].strip("[]") for task in reversed(host.cluster.plan["tasks"])}
    hosts = [
        {"name": name, "address": addresses[name], "port": host.signed["ports"][name]}
        for name in dict.fromkeys(task["host"] for task in host.cluster.plan["tasks"])
    ]
    user, home = host.values["ssh_mesh_user"], _home(host)
    return rendered("ssh_mesh/client.conf.j2", hosts=hosts, user=user, home=home)
