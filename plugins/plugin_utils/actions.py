"""What all actions have in common."""

from typing import Any

from ansible.plugins.action import ActionBase


class HostAction(ActionBase):
    """An action, by its `_act`: arguments in, answer out. `variables` are the task's."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer. An action that does not say otherwise has changed nothing."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.variables = task_vars or {}
        return result | {"changed": False} | self._act(dict(self._task.args))

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def _run_module(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module(name, arguments, task_vars=self.variables)
        return answer


class ControllerAction(HostAction):
    """One that reaches no host."""

    _requires_connection = False
