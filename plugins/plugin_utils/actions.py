"""The base classes of all actions."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from psfleet.carry.marked_output import mark_output, output_between
from psfleet.run.host_answers import UnusableError, checked
from psfleet.watch.hints import with_inventory
from psfleet.watch.terminal import escaped, escaped_texts

from .connections import connection_to, without_secrets
from .running import COLLECTION, answer_of, with_escaped_warnings

# The fields of an answer that are only shown. The callback `brief` escapes them, but the user may have
# another callback.
SHOWN = ("msg", "warnings", "diff")


class AnswerError(AnsibleActionFail):
    """A host's answer to a module is invalid: the module itself cannot have given it."""


class HostAction(ActionBase):
    """The base class of this collection's actions. `variables` are the variables of the Ansible task."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer of `_act`, with `changed` False if the answer has no `changed`.

        In the answer's `msg`, `warnings` and `diff`, and in errors, texts are escaped for a terminal.
        """
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.variables = task_vars or {}
        try:
            answer = self._act(dict(self._task.args))
        except Exception as error:
            if (text := str(error)) == escaped(text):
                raise
            unreachable = isinstance(error, AnsibleConnectionFailure)
            raise (AnsibleConnectionFailure if unreachable else AnsibleActionFail)(escaped(text)) from None
        shown = {name: escaped_texts(answer[name]) for name in SHOWN if name in answer}
        return {**result, "changed": False, **answer, **shown}

    @abstractmethod
    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Perform the action with these arguments of the Ansible task, and return its result for Ansible."""

    def on(self, host: str, ssh_options: Mapping[str, object] = MappingProxyType({})) -> Self:
        """Return the same action, connected to another `host`, with the variables of that host.

        `ssh_options`, {name of an option of Ansible's ssh plugin: value}, have precedence over the variables.
        Raises AnsibleError if the host's variables permit no connection. It does not log in yet.
        """
        hostvars = self.variables["hostvars"]
        variables = {**hostvars.raw_get(host), "hostvars": hostvars}
        context = without_secrets(self._play_context, self.variables)
        there = type(self)(
            task=self._task,
            connection=connection_to(hostvars[host], self._task, context, ssh_options),
            play_context=context,
            loader=self._loader,
            templar=self._templar.copy_with_new_env(available_variables=variables),
            shared_loader_obj=self._shared_loader_obj,
        )
        there.variables = variables
        return there

    @property
    def check_mode(self) -> bool:
        """Whether the Ansible task must not change anything."""
        return bool(self._task.check_mode)

    def run_command(self, command: str, *, sudoable: bool = True) -> tuple[str, str]:
        """Run a shell command on the host; return (standard output, standard error), whatever its exit code.

        The user of the Ansible task runs it; if not `sudoable`, the user who logs in. What the login shell
        prints around the standard output is removed. Raises AnsibleError if the host cannot be reached.
        """
        marker, whole = mark_output(command)
        answer = self._low_level_execute_command(whole, sudoable=sudoable)
        return output_between(marker, str(answer["stdout"])), str(answer["stderr"])

    def _parse_returned_data(self, res: dict[str, Any], *others: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return what a module printed, parsed as Ansible does, but with its texts escaped for a terminal.

        Ansible itself shows a module's warnings, and output that is not JSON.
        """
        printed = escaped_texts(res)
        printed["stdout"] = with_escaped_warnings(printed["stdout"])
        read: dict[str, Any] = super()._parse_returned_data(printed, *others)
        return read

    def _remote_expand_user(self, path: str, *arguments: Any, **keywords: Any) -> str:  # noqa: ANN401
        """Return `path` with ~ replaced by the user's home on the host, as Ansible does.

        What the login shell prints around it is ignored.
        """
        execute = self._low_level_execute_command  # type: ignore[has-type]

        def marked_execute(cmd: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401
            marker, whole = mark_output(cmd)
            answer: dict[str, Any] = execute(whole, **given)
            return {**answer, "stdout": output_between(marker, str(answer["stdout"]))}

        self._low_level_execute_command = marked_execute
        try:
            expanded: str = super()._remote_expand_user(path, *arguments, **keywords)
        finally:
            self._low_level_execute_command = execute
        return expanded

    def _run_module(self, module: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run a module of this collection on the host; return its checked answer.

        Every answer of a host passes through here. A module that fails is not an error: its answer has
        `failed` and `msg`. Raises AnswerError for an invalid answer, and NotRunError if there is none.
        """
        name, sent = f"{COLLECTION}{module}", dict(arguments)
        try:
            output = answer_of(module, lambda: self._execute_module(name, sent, task_vars=self.variables))
            answer = checked(module, output, arguments)
        except (RecursionError, UnusableError) as error:
            raise AnswerError(f"its answer to {module} is damaged: {error}") from error
        # A message names playbooks without an inventory, which `_failure` adds.
        return answer | (self._failure(answer["msg"]) if answer.get("failed") else {})

    def _failure(self, message: str) -> dict[str, Any]:
        """Return {"failed": True, "msg": message}; commands in the message get -i with this inventory."""
        sources = self.variables["ansible_inventory_sources"]
        return {"failed": True, "msg": with_inventory(message, sources)}

    def _send(self, local: Path, folder: str) -> str:
        """Copy a file into a temporary folder of the host; return its path there."""
        path = f"{folder}/{local.name}"
        self._transfer_file(str(local), path)
        self._fixup_perms2((folder, path))
        return path


class ControllerAction(HostAction):
    """An action that needs no connection to a host."""

    _requires_connection = False
