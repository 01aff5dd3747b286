"""Reads facts about a host before anything is changed there, and checks the host's answer."""

import getpass
from typing import Any

from ..module_utils.module import NOT_ROOT
from ..plugin_utils.actions import HostAction
from ..plugin_utils.identities import identity_problem
from ..plugin_utils.reaching import answer_or_problem


class ActionModule(HostAction):
    """Returns the answer of the module, and fails for a host whose keys cannot be signed.

    Takes the arguments of the module; `identity` may also have `authority`, the authority on the controller
    that is to sign the host's keys. With `report_unreached`, the action does not fail for a host that does
    not answer or does not act as root. It then also returns `reached`, whether the host has answered as root,
    and `summary`, a line with the host, the login user and the problem.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        reports = arguments.pop("report_unreached", False)
        if not reports:
            return self._look(arguments)
        answer, problem = answer_or_problem(lambda: self._look(arguments))
        if answer.get("failed") and answer["msg"].startswith(NOT_ROOT):
            answer, problem = {}, f"logged in, but could not act as root: {answer['msg']}"
        user = str(self.variables.get("ansible_user") or self._play_context.remote_user or getpass.getuser())
        summary = f"- {self.variables['inventory_hostname']}, user {user}: {problem or 'answered as root'}"
        return {**answer, "reached": not problem, "summary": summary}

    def _look(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the host's answer; a failure if its keys cannot be signed.

        Raises AnswerError for an invalid answer, NotRunError for none, and AnsibleConnectionFailure.
        """
        identity = arguments.get("identity") or {}
        authority = identity.get("authority")
        if identity:
            arguments["identity"] = {name: value for name, value in identity.items() if name != "authority"}
        answer = self._run_module("host_facts", arguments)
        if authority and not answer.get("failed"):
            facts = answer["ansible_facts"]
            keys, tasks = facts["psfleet_identity"], facts.get("psfleet_found", {}).get("tasks", [])
            if problem := identity_problem(self.variables["inventory_hostname"], identity, keys, tasks):
                return self._failure(problem)
        return answer
