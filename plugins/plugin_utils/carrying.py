"""Runs a module that may need an archive from the controller, and carries the archive only if needed."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .actions import HostAction
from .running import COLLECTION


class CarryingAction(HostAction):
    """Runs the module with the action's name, and runs it again with an `archive` if the host needs one."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run the module; if its answer needs an archive, carry the archive, and run the module again.

        Return the last answer. In check mode, and if the module failed, nothing is carried.
        """
        sent = self._for_host(arguments)
        answer = self._run(sent)
        if answer.get("needs_archive") and not (answer.get("failed") or self._task.check_mode):
            return self._carry(sent, arguments)
        return answer

    @abstractmethod
    def _for_host(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that the action sends to the module, from the `arguments` of the action."""

    @abstractmethod
    def _carry(self, sent: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Carry the archive to the host, run the module again, and return its answer.

        `sent` is what `_for_host` returned; `arguments` are those of the action.
        """

    def _run(self, sent: Mapping[str, Any]) -> dict[str, Any]:
        return self._run_module(self._task.action.removeprefix(COLLECTION), sent)

    def _send_and_run(
        self, sent: Mapping[str, Any], archive: Path, arrived: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Copy the archive to the host, run the module with its path as `archive`, and return the answer.

        `arrived` is called between the two. The copy is removed at the end.
        """
        remote = self._make_tmp_path()
        try:
            path = self._send(archive, remote)
            arrived()
            return self._run({**sent, "archive": path})
        finally:
            self._remove_tmp_path(remote, force=True)
