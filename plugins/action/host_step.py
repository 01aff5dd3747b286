"""Runs one step, or one of Ansible's own modules, on a host, and checks the answer."""

from typing import Any

from ..plugin_utils.carrying import CarryingAction


class ActionModule(CarryingAction):
    """Arguments: `step`, and `arguments` or `computed`, as for CarryingAction.

    Returns the answer; with `fact`, it is also the host's fact of this name. A step that is computed for
    several arguments is taken for each, and the last answer is returned; a host that does not need it has
    changed nothing.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        steps = self._with_arguments([arguments])
        answers = self._run_steps([(step["step"], step["arguments"]) for step in steps]) if steps else [{}]
        facts = {"ansible_facts": {arguments["fact"]: answers[-1]}} if "fact" in arguments else {}
        changed = any(answer.get("changed") for answer in answers)
        return {**answers[-1], "changed": changed, **facts}
