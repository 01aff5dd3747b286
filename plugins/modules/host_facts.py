"""Describes a host before anything is changed there, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_facts
short_description: Describes a host before anything is changed there, in one call
description:
  - 'It reads the parts that the options ask for, changes nothing, and sets a fact for each part: C(psfleet_found)
    for O(found), and so on.'
  - It acts as root, and fails if the user that it becomes is not root.
  - The action also takes C(report_unreached). If that is true, it does not fail for a host that does not answer or does
    not act as root, and it returns C(reached), and C(summary), a line with the host, the login user and the problem.
  - In O(identity), the action also takes C(authority), with C(directory) and C(cluster). It fails for a host whose keys
    this certificate authority cannot sign.
author: psfleet (@psfleet)
options:
  systems:
    description: The fact V(cluster_systems), for O(requirements) and O(gpus).
    type: dict
    default: {}
  found:
    description: Whether a run is going on, who holds the ports of the tasks, and what is deployed.
    type: dict
    suboptions:
      tasks:
        description: The tasks to describe, each with its job and index.
        type: list
        elements: dict
        required: true
      others:
        description: Include the host's other tasks.
        type: bool
        default: false
      patience:
        description: Seconds to wait first for another command that holds V(host_lease).
        type: float
        default: 0
      starting:
        description: Tasks of the plan; the answer says why they could not start.
        type: list
        elements: dict
        default: []
      tables:
        description: The tables of a model that the tasks in V(starting) will hold, as in V(HostNeeds) of host_checks.py.
        type: dict
        default: {}
      metrics_directory:
        description: Directory of the metrics; empty for none.
        type: str
        default: ''
      plan_hash:
        description: Hash of today's plan. If it is deployed, V(deployed) has only the hash.
        type: str
        default: ''
      paths:
        description: The fact V(cluster_paths).
        type: dict
        required: true
  requirements:
    description: Whether the host is supported, and which Python environment it gets. It fails with
      all problems at once.
    type: dict
    suboptions:
      host:
        description: The host's name, for messages.
        type: str
        required: true
      python_version:
        description: The version of Python that the environment must have, such as V(3.11); empty for any that fits.
        type: str
        default: ''
      gpus:
        description: Whether a task of this host has GPUs.
        type: bool
        default: false
      cuda_source:
        description: Where the CUDA libraries of a host with GPUs come from.
        type: str
        choices:
          - wheels
          - system
        default: wheels
      tasks:
        description: How many tasks this host has.
        type: int
        default: 1
      accounts:
        description: For the name of each account that a deployment makes, the variable that has this name.
        type: dict
        default: {}
      fence:
        description: Whether the ports of the host's tasks should be fenced.
        type: bool
        default: true
      mesh:
        description: Whether the host should have WireGuard.
        type: bool
        default: false
      data_directories:
        description: The folders from which the host's tasks read data, if deploy.yml does not carry the data.
        type: list
        elements: str
        default: []
      programs:
        description: The requirements of the user's programs, the field V(packages) of each program in the fact V(cluster_programs).
        type: list
        elements: dict
        default: []
      now:
        description: The controller's clock, in Unix seconds.
        type: float
        required: true
  gpus:
    description: The GPUs of its tasks, and NVIDIA's driver. It fails with what keeps the tasks from
      their GPUs.
    type: dict
    suboptions:
      host:
        description: The host's name, for messages.
        type: str
        required: true
      tasks:
        description: The tasks of this host in the plan.
        type: list
        elements: dict
        required: true
      driver:
        description:
          - V(check) fails with everything that keeps the tasks from their GPUs.
          - V(present) does not fail if the driver is missing or does not work, and its packages can be installed; then
            it returns these packages. Otherwise it does the same as V(check).
          - V(installed) does the same as V(check), after V(packages) were installed. V(look) never fails.
        type: str
        choices:
          - check
          - present
          - installed
          - look
        default: check
      packages:
        description: The packages of the driver that the user has named; empty for the system's own.
        type: list
        elements: str
        default: []
  content:
    description: Which releases, programs and environments the host already has.
    type: dict
    suboptions:
      install_directory:
        description: The directory in which they are.
        type: path
        required: true
      run_directory:
        description: The directory with the files of the tasks' last runs.
        type: path
        required: true
      keep:
        description: How many deployments' content of each kind stays, the present one included.
        type: int
        default: 2
      releases:
        description: The releases of the trainer to look for.
        type: list
        elements: str
        default: []
      programs:
        description: The releases of programs to look for.
        type: list
        elements: str
        default: []
      group:
        description: The group that may read the programs.
        type: str
        required: true
  units:
    description: Whether systemd has the units of the plan, as they are on the disk.
    type: dict
    suboptions:
      tasks:
        description: The tasks whose units stay on the host.
        type: list
        elements: dict
        required: true
      metrics_directory:
        description: Directory of the metrics; empty for none.
        type: str
        default: ''
      metrics_record:
        description: The file with the directory of the metrics that was used before.
        type: path
        required: true
      paths:
        description: The fact V(cluster_paths).
        type: dict
        required: true
  identity:
    description: The accounts and the keys of SSH.
    type: dict
    suboptions:
      home:
        description: The account's home, owned by root.
        type: path
        required: true
      user:
        description: The account, and its group.
        type: str
        required: true
      name:
        description: The address of this host in the plan, which may be a name.
        type: str
        required: true
      accounts:
        description: The V(home) and V(shell) of each account that a deployment creates.
        type: dict
        default: {}
attributes:
  check_mode:
    support: full
    description: It changes nothing anyway.
  facts:
    support: full
    description: It sets facts of the host.
"""

EXAMPLES = r"""
- name: Look at the GPUs of a host
  psfleet.cluster.host_facts:
    systems: "{{ cluster_systems }}"
    gpus:
      host: "{{ inventory_hostname }}"
      tasks: "{{ cluster_tasks[inventory_hostname] }}"
      driver: look

- name: Show the driver
  ansible.builtin.debug:
    var: ansible_facts.psfleet_gpus.gpu_facts.driver
"""

RETURN = r"""
ansible_facts:
  description: 'What each part found, as facts of the host: RV(ansible_facts.psfleet_found) and so
    on.'
  returned: success
  type: dict
  contains:
    psfleet_found:
      description: What M(psfleet.cluster.trainer_tasks) returns.
      returned: with O(found)
      type: dict
    psfleet_requirements:
      description: Which Python environment the host gets.
      returned: with O(requirements)
      type: dict
      contains:
        environment:
          returned: success
          type: str
          description: Name of the locked environment that the host gets, such as `gpu-python3.11-x86_64`.
        programs:
          returned: success
          type: dict
          description: For the key of each program's requirements, the name of the environment that the program gets.
        python:
          returned: success
          type: str
          description: The absolute path of the system's Python from which the environment is made.
        system:
          returned: success
          type: dict
          description: The fields of its operating system's description that roles read.
    psfleet_gpus:
      description: The GPUs of the host's tasks, and NVIDIA's driver.
      returned: with O(gpus)
      type: dict
      contains:
        gpu_facts:
          returned: always
          type: dict
          description: The fields of GpuFacts of plugins/module_utils/facts/nvidia.py; empty if no task has GPUs.
        checks:
          returned: always
          type: list
          description: The checks of the GPUs, each with `name`, `state`, `found` and `remedy`.
          elements: dict
        installation:
          returned: always
          type: dict
          description: >-
            The `packages` to install, and in `says` what that means, as sentences. Empty if the driver works, and unless
            the driver is V(present).
        broken:
          returned: always
          type: list
          description: The names of the failed checks that a working driver would fix.
          elements: str
    psfleet_content:
      description: The releases, programs and environments that the host already has.
      returned: with O(content)
      type: dict
      contains:
        releases:
          returned: always
          type: list
          description: The releases among O(content.releases) that it has.
          elements: str
        programs:
          returned: always
          type: list
          description: The releases among O(content.programs) that it has, and that only root and the group can read.
          elements: str
        environments:
          returned: always
          type: list
          description: The hashes of all Python environments that are complete.
          elements: str
        settled:
          returned: always
          type: list
          description: The names of what the last deployment wanted, sorted. If they are what this deployment wants, too, then
            M(psfleet.cluster.content_release) with O(psfleet.cluster.content_release#module:state=pruned) has nothing to do.
            Empty if there is content to remove.
          elements: str
    psfleet_units:
      description: The tasks' units, as systemd has them.
      returned: with O(units)
      type: dict
      contains:
        up_to_date:
          returned: always
          type: bool
          description: Whether M(psfleet.cluster.trainer_tasks) with O(psfleet.cluster.trainer_tasks#module:state=reloaded)
            would change nothing.
    psfleet_identity:
      description: The accounts and the keys of SSH.
      returned: with O(identity)
      type: dict
      contains:
        user_key:
          returned: always
          type: str
          description: The account's public key; empty if it does not exist yet.
        host_key:
          returned: always
          type: str
          description: The public key of this host's sshd.
        prepared:
          returned: always
          type: bool
          description: Whether the accounts and the key are as a deployment makes them.
        proven:
          returned: always
          type: bool
          description: Whether nothing has changed since M(psfleet.cluster.ssh_login) proved the login.
        authority:
          returned: always
          type: str
          description: Public key of the authority that this host trusts.
        cluster:
          returned: always
          type: str
          description: The cluster whose users are admitted.
        certificate:
          returned: always
          type: str
          description: The account's certificate; empty at first.
        deployed_by:
          returned: always
          type: str
          description: Who deployed here last, empty if unknown.
        addresses:
          returned: always
          type: list
          description: The IP addresses that O(identity.name) has on this host, without loopback.
          elements: str
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.facts.content import look_at_content
from ..module_utils.facts.gpu_look import look_at_gpus
from ..module_utils.facts.host_requirements import look_at_requirements
from ..module_utils.facts.ssh_identity import look_at_identity
from ..module_utils.module import NOT_ROOT, make_module
from ..module_utils.systems import read_systems
from ..module_utils.tasks.reloaded_units import look_at_units
from ..module_utils.tasks.trainer_tasks import LOOK, tasks_answer

ARGUMENTS: dict[str, Any] = {
    "systems": {"type": "dict", "default": {}},
    "found": {"type": "dict", "options": LOOK},
    "requirements": {
        "type": "dict",
        "options": {
            "host": {"required": True},
            "python_version": {"default": ""},
            "gpus": {"type": "bool", "default": False},
            "cuda_source": {"choices": ["wheels", "system"], "default": "wheels"},
            "tasks": {"type": "int", "default": 1},
            "accounts": {"type": "dict", "default": {}},
            "fence": {"type": "bool", "default": True},
            "mesh": {"type": "bool", "default": False},
            "data_directories": {"type": "list", "elements": "str", "default": []},
            "programs": {"type": "list", "elements": "dict", "default": []},
            "now": {"type": "float", "required": True},
        },
    },
    "gpus": {
        "type": "dict",
        "options": {
            "host": {"required": True},
            "tasks": {"type": "list", "elements": "dict", "required": True},
            "driver": {"choices": ["check", "present", "installed", "look"], "default": "check"},
            "packages": {"type": "list", "elements": "str", "default": []},
        },
    },
    "content": {
        "type": "dict",
        "options": {
            "install_directory": {"type": "path", "required": True},
            "run_directory": {"type": "path", "required": True},
            "keep": {"type": "int", "default": 2},
            "releases": {"type": "list", "elements": "str", "default": []},
            "programs": {"type": "list", "elements": "str", "default": []},
            "group": {"required": True},
        },
    },
    "units": {
        "type": "dict",
        "options": {
            "tasks": {"type": "list", "elements": "dict", "required": True},
            "metrics_directory": {"default": ""},
            "metrics_record": {"type": "path", "required": True},
            "paths": {"type": "dict", "required": True},
        },
    },
    "identity": {
        "type": "dict",
        "options": {
            "home": {"type": "path", "required": True},
            "user": {"required": True},
            "name": {"required": True},
            "accounts": {"type": "dict", "default": {}},
        },
    },
}

# A function of a part's arguments and `warn`, which returns the part's answer. It raises ValueError with what
# the host lacks.
Look = Callable[[Mapping[str, Any], Callable[[str], None]], dict[str, Any]]
PARTS: Mapping[str, Look] = {
    "requirements": look_at_requirements,
    "gpus": look_at_gpus,
    "content": look_at_content,
    "units": look_at_units,
    "identity": look_at_identity,
}


def run(module: AnsibleModule) -> None:
    """Exit with the facts of each part of the arguments, such as `psfleet_gpus`; change nothing.

    The module fails if it does not run as root, or if a part raises ValueError or OSError.
    """
    if user := os.geteuid():
        module.fail_json(msg=f"{NOT_ROOT} {user}; expected 0")
    found = {}
    try:
        if (values := module.params["found"]) is not None:
            found["psfleet_found"] = tasks_answer(values, check_mode=module.check_mode)
        systems = read_systems(module.params["systems"])
        for part, look in PARTS.items():
            if (values := module.params[part]) is not None:
                found[f"psfleet_{part}"] = look({**values, "systems": systems}, module.warn)
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, ansible_facts=found)


def main() -> None:
    """Run the module with the arguments from Ansible; exit with its answer, or with a failure."""
    run(make_module(ARGUMENTS))


if __name__ == "__main__":
    main()
