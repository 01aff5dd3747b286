"""What all actions have in common."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from psfleet.run.host_answers import UnusableError, checked
from psfleet.watch.hints import with_inventory
from psfleet.watch.terminal import escape_all_messages

from .host_program import OURS, PYTHON_FACT, Call, run_on_host

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
        answer = result | {"changed": False} | self._act(dict(self._task.args))
        if found := self._discovered_interpreter:  # by which all that comes after is run
            answer["ansible_facts"] = {PYTHON_FACT: found, **answer.get("ansible_facts", {})}
        return answer

    @abstractmethod
    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Do what the action is for, and return its answer."""

    def _run_module(self, arguments: dict[str, Any], name: str = "") -> dict[str, Any]:
        """Return what a module answers on the host: that of the action's own name, or another.

        Raises AnswerError for what it cannot answer, NotRunError where it does not answer.
        """
        return next(self._run_modules([(name or self._task.resolved_action, arguments)]))

    def _run_modules(self, calls: Sequence[Call]) -> Iterator[dict[str, Any]]:
        """Yield what is kept of modules' answers, up to the first that fails, or that needs an archive.

        However a module ran on the host, its answer comes by here. Raises as `_run_module`.
        """
        names = ", ".join(module for module, _ in calls)
        try:
            for (module, arguments), answer in zip(
                calls, run_on_host(self, calls, self.variables), strict=False
            ):
                kept = checked(module.removeprefix(OURS), answer, arguments)
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
