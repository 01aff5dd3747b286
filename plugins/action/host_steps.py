"""Runs several steps on a host, in as few round trips as their archives permit."""

import getpass
from collections.abc import Mapping, Sequence
from typing import Any

from trainer.host.disk_space import readable

from ..plugin_utils.carrying import CarryingAction
from ..plugin_utils.reaching import answer_or_problem


class ActionModule(CarryingAction):
    """Argument: `steps`, as for CarryingAction; a step's `fact` is the host's fact with its answer.

    Returns `changed_steps` (the names of steps that changed something). Fails with the first step that fails
    (`failed_step`); changes of the steps before it stay.

    With `report_unreached`, it does not fail on a host that does not answer, or fails in `require_root`. Then
    it also returns `reached`, and `summary` with the host, the login user and the problem.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        steps = arguments["steps"]
        if not arguments.get("report_unreached"):
            return self._take_steps(steps)
        answer, problem = answer_or_problem(lambda: self._take_steps(steps))
        # Other steps fail on a host that was reached.
        if answer.get("failed_step") in {step["name"] for step in steps if step["step"] == "require_root"}:
            answer, problem = {}, f"logged in, but could not act as root: {answer['msg']}"
        user = str(self.variables.get("ansible_user") or self._play_context.remote_user or getpass.getuser())
        summary = f"- {self.variables['inventory_hostname']}, user {user}: {problem or 'answered as root'}"
        return {**answer, "reached": not problem, "summary": summary}

    def _take_steps(self, steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the answer. Raises as `_take`."""
        steps = self._with_arguments(steps)
        answers = self._run_steps([(step["step"], step["arguments"]) for step in steps])
        answered = list(zip(steps, answers, strict=False))
        changed = [f"{step['name']}{freed(answer)}" for step, answer in answered if answer.get("changed")]
        result: dict[str, Any] = {
            "changed": bool(changed),
            "changed_steps": changed,
            "warnings": [warning for answer in answers for warning in answer.pop("warnings", ())],
            "diff": [each for answer in answers for each in as_list(answer.pop("diff", []))],
        }
        if answers and answers[-1].get("failed"):
            return {**answers[-1], **result, "failed_step": steps[len(answers) - 1]["name"]}
        return {
            **result,
            "ansible_facts": {step["fact"]: answer for step, answer in answered if "fact" in step},
        }


def freed(answer: Mapping[str, Any]) -> str:
    """Return the disk space that a step freed, in words that follow its name."""
    return f" ({readable(answer['freed_bytes'])})" if "freed_bytes" in answer else ""


def as_list(difference: Any) -> list[Any]:  # noqa: ANN401
    """Return the differences of an answer as a list; a module may give a single one."""
    return difference if isinstance(difference, list) else [difference] if difference else []
