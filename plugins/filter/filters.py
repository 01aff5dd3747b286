"""The filters of roles and playbooks, except the filters for practice hosts.

Most are functions of psfleet.
"""

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from .. import COLLECTION  # noqa: F401 - this import makes the packages below importable

# isort: split

from psfleet.carry.own_cache import own_cache
from psfleet.run import task_files
from psfleet.run.cuda_environment import cuda_environment
from psfleet.run.start import deploy_problems, deployed_by_others
from psfleet.watch.failed_run import failures
from psfleet.watch.hints import remedies, with_inventory
from psfleet.watch.plan_table import plan_table
from trainer.contract.exit_codes import UNIT_CODES

from ..module_utils.tasks.boots import write_boot_command


def tunnel_command(variables: Mapping[str, Any], port: int, socket: str) -> str:
    """Return the ssh command that forwards a port of this machine to a unix socket of a host.

    User, address, port, key and options are the ones that Ansible uses for the host: `variables` are the
    host's. If both are set, such as `ansible_ssh_port` and `ansible_port`, the name with `ssh` counts, as for
    Ansible.
    """

    def setting(name: str) -> str:
        return str(variables.get(f"ansible_ssh_{name}") or variables.get(f"ansible_{name}") or "").strip()

    words = ["ssh", "-N", "-L", f"{port}:{socket}"]
    for option, value in (("-p", setting("port")), ("-i", setting("private_key_file"))):
        words += [option, value] if value else []
    # These values are already parts of a command line, so they are not quoted.
    options = [setting("common_args"), setting("extra_args")]
    user, address = setting("user"), setting("host") or str(variables["inventory_hostname"])
    place = shlex.quote(f"{user}@{address}" if user else address)
    return " ".join([shlex.join(words), *filter(None, options), place])


def exit_codes(kind: str) -> tuple[int, ...]:
    """Return the exit codes of a `kind` for the units of tasks: "no_restart", "ended" or "stopped"."""
    return UNIT_CODES[kind]


FILTERS = (
    cuda_environment,
    deploy_problems,
    deployed_by_others,
    exit_codes,
    failures,
    own_cache,
    plan_table,
    remedies,
    task_files.evaluator_files,
    task_files.gpu_drop_ins,
    task_files.known_tasks,
    task_files.run_file_paths,
    task_files.run_files,
    task_files.task_environments,
    tunnel_command,
    with_inventory,
    write_boot_command,
)


class FilterModule:
    """The filters in FILTERS; Ansible loads the class with this name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return {name of a filter: its function}."""
        return {function.__name__: function for function in FILTERS}
