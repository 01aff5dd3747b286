"""What all actions have in common."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from psfleet.run.host_answers import UnusableError, checked
from psfleet.watch.hints import with_inventory
from psfleet.watch.terminal import escape_all_messages

from .running import Call, run_on_host

# Whoever has psfleet as a collection may have another callback than ours.
escape_all_messages()


class AnswerError(AnsibleActionFail):
    """What a host answered is none of what the module can have answered there."""


class HostAction(ActionBase):
    """An action, by its `_act`: arguments in, answer out. `variables` are the task's."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer. An action that does not say otherwise has changed nothing."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.variables = task_vars or {}
        return result | {"changed": False} | self._act(dict(self._task.args))

    @abstractmethod
    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Do what the action is for, and return its answer."""

    def _take(self, step: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the host answers to a step, or a module of Ansible's with its whole name.

        Raises AnswerError for what it cannot answer, NotRunError where it does not answer.
        """
        return next(self._take_calls([(step, arguments)]))

    def _take_calls(self, calls: Sequence[Call]) -> Iterator[dict[str, Any]]:
        """Yield what is kept of the answers, up to the first that fails, or that needs an archive.

        All that a host answers comes by here. Raises as `_take`.
        """
        names = ", ".join(step for step, _ in calls)
        try:
            answers = run_on_host(self, calls, self.variables)
            for (step, arguments), answer in zip(calls, answers, strict=False):
                kept = checked(step, answer, arguments)
                # It names playbooks as people type them who have one inventory.
                yield kept | (self._failure(kept["msg"]) if kept.get("failed") else {})
        except (RecursionError, UnusableError) as error:
            raise AnswerError(f"its answer to {names} is damaged: {error}") from error

    def _failure(self, message: str) -> dict[str, Any]:
        """Return the answer of an action that fails. Where it names playbooks, they are for these hosts."""
        sources = self.variables["ansible_inventory_sources"]
        return {"failed": True, "msg": with_inventory(message, sources)}

    def _send(self, local: Path, folder: str) -> str:
        """Copy a file into a temporary folder of the host, and return its path there."""
        path: str = self._connection._shell.join_path(folder, local.name)
        self._transfer_file(str(local), path)
        self._fixup_perms2((folder, path))
        return path


class ControllerAction(HostAction):
    """One that reaches no host."""

    _requires_connection = False
