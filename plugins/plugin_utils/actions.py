"""The base classes of all actions."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from psfleet.carry.marked_output import between, marked
from psfleet.run.host_answers import UnusableError, checked
from psfleet.watch.hints import with_inventory
from psfleet.watch.terminal import escape_all_messages

from .running import Call, run_on_host

# Users of the collection may have another callback than `brief`, which also calls this.
escape_all_messages()


class AnswerError(AnsibleActionFail):
    """A host's answer that the step cannot have given."""


class HostAction(ActionBase):
    """An action, defined by its `_act`, from arguments to answer; `variables` are those of the task."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer; by default an action has changed nothing."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.variables = task_vars or {}
        return result | {"changed": False} | self._act(dict(self._task.args))

    @abstractmethod
    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Perform the action, and return its answer."""

    def _remote_expand_user(self, path: str, *arguments: Any, **keywords: Any) -> str:  # noqa: ANN401
        """Expand ~ as Ansible does, without what the login shell prints beside it."""
        execute = self._low_level_execute_command  # type: ignore[has-type]

        def marked_execute(cmd: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401
            marker, whole = marked(cmd)
            answer: dict[str, Any] = execute(whole, **given)
            return {**answer, "stdout": between(marker, str(answer["stdout"]))}

        self._low_level_execute_command = marked_execute
        try:
            expanded: str = super()._remote_expand_user(path, *arguments, **keywords)
        finally:
            self._low_level_execute_command = execute
        return expanded

    def _take(self, step: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a host's answer to a step, or to a module of Ansible's with its full name.

        Raises AnswerError for an invalid answer, NotRunError if there is none.
        """
        return next(self._take_calls([(step, arguments)]))

    def _take_calls(self, calls: Sequence[Call]) -> Iterator[dict[str, Any]]:
        """Yield the checked answers, up to the first one that fails or needs an archive.

        Every answer of a host passes through here. Raises as `_take`.
        """
        names = ", ".join(step for step, _ in calls)
        try:
            answers = run_on_host(self, calls, self.variables)
            for (step, arguments), answer in zip(calls, answers, strict=False):
                kept = checked(step, answer, arguments)
                # A message names playbooks without an inventory, which `_failure` adds.
                yield kept | (self._failure(kept["msg"]) if kept.get("failed") else {})
        except (RecursionError, UnusableError) as error:
            raise AnswerError(f"its answer to {names} is damaged: {error}") from error

    def _failure(self, message: str) -> dict[str, Any]:
        """Return the answer of an action that fails; commands in the message get this inventory."""
        sources = self.variables["ansible_inventory_sources"]
        return {"failed": True, "msg": with_inventory(message, sources)}

    def _send(self, local: Path, folder: str) -> str:
        """Copy a file into a temporary folder of the host, and return its path there."""
        path: str = self._connection._shell.join_path(folder, local.name)
        self._transfer_file(str(local), path)
        self._fixup_perms2((folder, path))
        return path


class ControllerAction(HostAction):
    """An action that needs no connection to a host."""

    _requires_connection = False
