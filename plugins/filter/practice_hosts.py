"""Computes names, addresses and the inventory of practice hosts from the role's variables."""

import hashlib
import ipaddress
import re
from typing import Any

from .. import COLLECTION  # noqa: F401 - this import makes the packages below importable

# isort: split

from ansible.errors import AnsibleFilterError

from trainer.contract.plan import JOBS

FIRST_ADDRESS = 11  # the network's gateway has 1
SCENARIO = re.compile(r"[a-z][a-z0-9-]{0,30}")
SCENARIO_IN_WORDS = "a small letter, then small letters, digits or '-', 31 at most"
NODE_NAME = re.compile(r"(?=.{1,31}$)[A-Za-z][A-Za-z0-9]*(-+[A-Za-z0-9]+)*")
NODE_NAME_IN_WORDS = "a hostname: a letter, then letters, digits or '-', no '-' at the end, 31 at most"
SSH_PORT = 22
USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
WHERE = "where practice_hosts is applied (a playbook or a Molecule scenario)"

# A node as in docs/practice-hosts.md. A node from `practice_hosts_plan` also has `container`, `address`, all
# defaults.
Host = dict[str, Any]


def practice_hosts_image(suite: str, recipe: str, packages: list[str]) -> str:
    """Return the name of the base image, with a hash of the suite, the recipe and the packages.

    Example: "localhost/psfleet-practice:3f2a91c07de4"
    """
    shape = recipe + suite + " ".join(packages)
    return f"localhost/psfleet-practice:{hashlib.sha256(shape.encode()).hexdigest()[:12]}"


def practice_hosts_sudo_password_file(name: str, directory: str) -> str:
    """Return the path of a host's file with its sudo password: `directory`/.ssh/`name`.sudo_password.

    `directory` is the folder of the practice hosts' inventory.
    """
    return f"{directory}/.ssh/{name}.sudo_password"


def practice_hosts_problems(nodes: list[Host], scenario: str) -> list[str]:
    """Return all problems of the role's input, each as a sentence; [] if there is none."""
    problems = []
    if not SCENARIO.fullmatch(scenario):
        problems.append(f"practice_hosts_scenario is '{scenario}'; expected {SCENARIO_IN_WORDS}.")
    if not nodes:
        problems.append("practice_hosts_nodes is empty; expected at least one node.")
    names = [str(node.get("name", "")) for node in nodes]
    for position, node in enumerate(nodes):
        where = f"practice_hosts_nodes[{position}]"
        problems += [f"{where}{problem}" for problem in _node_problems(node)]
        if names[position].lower() in (name.lower() for name in names[:position]):
            problems.append(
                f"{where}.name is '{names[position]}', which an earlier node has "
                "(capitals make no difference in hostnames); expected another."
            )
    return [f"{problem} Edit it {WHERE}." for problem in problems]


def _node_problems(node: dict[str, Any]) -> list[str]:
    name, user, groups = str(node.get("name", "")), str(node.get("user", "root")), node.get("groups", [])
    problems = [
        f".groups has '{group}'; expected only {', '.join(JOBS)}." for group in groups if group not in JOBS
    ]
    if not NODE_NAME.fullmatch(name):
        problems.append(f".name is '{name}'; expected {NODE_NAME_IN_WORDS}.")
    if not USER_NAME.fullmatch(user):
        problems.append(f".user is '{user}'; expected a login name.")
    port = int(node.get("ssh_port", SSH_PORT))
    if not 1 <= port <= 65535:
        problems.append(f".ssh_port is {port}; expected 1 to 65535.")
    if user == "root" and node.get("sudo_password"):
        problems.append(
            ".sudo_password is true, but .user is root, and sudo never asks root; name another user."
        )
    return problems


def practice_hosts_plan(nodes: list[Host], prefix: str, subnet: str, suite: str) -> list[Host]:
    """Return the nodes, in the same order, with defaults for missing keys, and with three more keys.

    - `container`: its name, `prefix`-<name of the node>. `address`: its IP address in the network `subnet`.
    - `mac_address`: its hardware address, which follows from the IP address. So a host keeps it over a
      reboot, as a machine does; else the caches of its neighbours (ARP) would be wrong for half a minute.

    `suite` is the default of the key `suite`. Raises AnsibleFilterError if the subnet has too few addresses.
    """
    network = ipaddress.ip_network(subnet)
    if network.num_addresses < FIRST_ADDRESS + len(nodes) + 1:
        raise AnsibleFilterError(
            f"practice_hosts_nodes has {len(nodes)} nodes; "
            f"the network {prefix} ({subnet}) has too few addresses."
        )
    return [
        {"groups": [], "user": "root", "sudo_password": False, "vars": {}}
        | node
        | {
            "container": f"{prefix}-{node['name']}",
            "address": str(network[FIRST_ADDRESS + position]),
            "mac_address": _mac_address(network[FIRST_ADDRESS + position]),
            "ssh_port": int(node.get("ssh_port", SSH_PORT)),
            "suite": node.get("suite") or suite,
        }
        for position, node in enumerate(nodes)
    ]


def _mac_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Return a locally administered hardware address that ends with the last four bytes of an IP address."""
    return ":".join(f"{byte:02x}" for byte in (2, 0, *address.packed[-4:]))


def practice_hosts_known_hosts(hosts: list[Host], host_keys: list[str]) -> str:
    """Return the text of a known_hosts file: a line for each host, with its address, its name and its key.

    `hosts` is the result of `practice_hosts_plan`; `host_keys` are their public keys, in the same order.
    """
    lines = [
        f"{_ssh_name(host['address'], host)},{_ssh_name(host['name'], host)} {' '.join(key.split()[:2])}\n"
        for host, key in zip(hosts, host_keys, strict=True)
    ]
    return "".join(lines)


def _ssh_name(name: str, host: Host) -> str:
    """Return the name that ssh looks up in known_hosts for the name or address `name` of a host.

    It is in lower case; if the host's port is not 22, it has the form "[node1]:2200".
    """
    name = name.lower()
    return name if host["ssh_port"] == SSH_PORT else f"[{name}]:{host['ssh_port']}"


def practice_hosts_inventory(hosts: list[Host], host_keys: list[str], directory: str) -> dict[str, Any]:
    """Return the inventory of the practice hosts, as the object for its YAML file.

    The group `tf_cluster` has the groups `ps` and `worker`, and `chief` and `evaluator` if a host is in them;
    a host without a group is only in `all`. `hosts` and `host_keys` are as for `practice_hosts_known_hosts`;
    the login key is in `directory`/.ssh.

    The control path contains a hash of the host's key. So a new host at an old address never gets the
    connection that is still open to the old host.
    """
    variables = {
        host["name"]: _login_variables(host, key, directory) | host["vars"]
        for host, key in zip(hosts, host_keys, strict=True)
    }
    jobs: dict[str, Any] = {
        job: {"hosts": {host["name"]: {} for host in hosts if job in host["groups"]}}
        for job in JOBS
        if job in {"ps", "worker"} or any(job in host["groups"] for host in hosts)
    }
    return {"all": {"hosts": variables, "children": {"tf_cluster": {"children": jobs}}}}


def _login_variables(host: Host, key: str, directory: str) -> dict[str, Any]:
    """Return the variables with which Ansible logs in to a host and becomes root there."""
    ssh = f"{directory}/.ssh"
    variables: dict[str, Any] = {
        "ansible_host": host["address"],
        "ansible_user": host["user"],
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_private_key_file": f"{ssh}/id_ed25519",
        "ansible_ssh_common_args": f"-o IdentitiesOnly=yes -o 'UserKnownHostsFile=\"{ssh}/known_hosts\"'",
        "ansible_control_path": f"%(directory)s/practice-{hashlib.sha256(key.encode()).hexdigest()[:8]}-%%r",
    }
    if host["ssh_port"] != SSH_PORT:
        variables["ansible_port"] = host["ssh_port"]
    if host["sudo_password"]:
        file = practice_hosts_sudo_password_file(host["name"], directory)
        variables["ansible_become_password"] = f"{{{{ lookup('ansible.builtin.file', '{file}') }}}}"
    return variables


FILTERS = (
    practice_hosts_image,
    practice_hosts_inventory,
    practice_hosts_known_hosts,
    practice_hosts_plan,
    practice_hosts_problems,
    practice_hosts_sudo_password_file,
)


class FilterModule:
    """The filters in FILTERS; Ansible loads the class with this name."""

    def filters(self) -> dict[str, Any]:
        """Return {name of a filter: its function}."""
        return {function.__name__: function for function in FILTERS}
