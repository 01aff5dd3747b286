"""Runs a shell command on a host, as the user of the task or as the one that logs in."""

from ansible.plugins.action import ActionBase

from psfleet.carry.marked_output import between, marked


def run_command(action: ActionBase, command: str, *, sudoable: bool = True) -> tuple[str, str]:
    """Return what a command printed, and its errors. What the login shell prints around it does not count.

    Raises AnsibleError if the host cannot be reached.
    """
    marker, whole = marked(command)
    answer = action._low_level_execute_command(whole, sudoable=sudoable)
    return between(marker, str(answer["stdout"])), str(answer["stderr"])
