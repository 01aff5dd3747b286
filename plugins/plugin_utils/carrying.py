"""Runs steps that may need an archive from the controller, and carries it only if they do."""

import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from psfleet.carry.fan_out import FanOut
from psfleet.carry.long_step import REPORT_SECONDS, bytes_read, report_progress
from psfleet.carry.wheel_archive import plain
from psfleet.deployment.steps import COMPUTED
from trainer.host.content_directory import content_files, content_hash

from .actions import AnswerError, HostAction
from .deployed_host import host_of
from .identities import identity_problem
from .running import Call, NotRunError

display = Display()
# The most characters of a host's message about its neighbours.
MOST_CHARACTERS = 500


class CarryingAction(HostAction):
    """Takes steps that may answer `needs_archive`, and then repeats them with `archive`.

    A step has a `name`, a `step` (or the full name of a module), and either its `arguments` or, as
    `computed`, the name of the function of psfleet/deployment/ that computes them for the host.

    The archive of `python_environment` is that of its `wheels`; hosts take it from each other through the
    account `shared_by`, unless that is "". The archive of `content_release` is packed from its `source`, a
    file or folder on the controller, whose hash is the default of `release`.
    """

    def _with_arguments(self, steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the steps with their arguments: computed ones as often as the host takes them."""
        if not any("computed" in step for step in steps):
            return [dict(step) for step in steps]
        host = host_of(self, self.variables)
        return [
            {**step, "arguments": arguments}
            for step in steps
            for arguments in (COMPUTED[step["computed"]](host) if "computed" in step else [step["arguments"]])
        ]

    def _run_steps(self, steps: Sequence[Call]) -> list[dict[str, Any]]:
        """Return the steps' answers, up to the first that fails; carry the archives that they need."""
        calls = [(step, described(step, arguments)) for step, arguments in steps]
        answers: list[dict[str, Any]] = []
        try:
            while len(answers) < len(calls):
                # `extend` adds each answer as it comes, so those before an exception are kept.
                answers.extend(self._take_calls(calls[len(answers) :]))
                place = len(answers) - 1
                if answers[place].get("needs_archive") and not self._task.check_mode:
                    answers[place] = self._carry(calls[place], steps[place][1])
                if answers[place].get("failed"):
                    break
        except (AnswerError, NotRunError) as error:
            if not answers:
                raise
            # The changes of earlier steps are reported together with the problem.
            answers.append({"failed": True, "msg": str(error)})
        for place, ((step, arguments), answer) in enumerate(zip(steps, answers, strict=False)):
            if step == "ssh_identity" and not answer.get("failed"):
                problem = identity_problem(self.variables["inventory_hostname"], arguments, answer)
                if problem:
                    return [*answers[:place], self._failure(problem)]
        return answers

    def _carry(self, call: Call, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Carry the archive to the host, and take the step with it."""
        if "wheels" in arguments:
            archive = Path(arguments["wheels"]["archive"])
            return self._carry_to_all(call, archive, arguments.get("shared_by", ""))
        source, release = Path(arguments["source"]), call[1]["release"]
        if (found := content_hash(source)) != release:
            raise AnsibleActionFail(
                f"{source} was changed while it was deployed: its hash is {found}, and was {release} before. "
                "Deploy again"
            )
        with tempfile.TemporaryDirectory() as directory:
            archive = Path(directory) / f"release-{release}.tar"
            pack(source, archive, arguments.get("package", ""))
            return self._send_and_run(call, archive)

    def _send_and_run(
        self, call: Call, archive: Path, sent: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Copy the archive to the host, call `sent`, and take the step with the archive."""
        step, arguments = call
        remote = self._make_tmp_path()
        try:
            path = self._send(archive, remote)
            sent()
            return self._take(step, {**arguments, "archive": path})
        finally:
            self._remove_tmp_path(remote, force=True)

    def _carry_to_all(self, call: Call, archive: Path, login: str) -> dict[str, Any]:
        """Send the archive to one host, and let later hosts take it from each other.

        Without a login account among the hosts, each of them gets a direct upload.
        """
        step, arguments = call
        host = self.variables["inventory_hostname"]
        fan_out = FanOut(Path(constants.DEFAULT_LOCAL_TMP), archive)

        def progress() -> str:
            return fan_out.progress(host, bytes_read(archive), REPORT_SECONDS)

        with (
            fan_out.turn_of(host, has_neighbours=bool(login)) as neighbours,
            report_progress(display.display, progress, 1, fan_out.began),
        ):
            if neighbours:
                shared = {"login": login, "neighbours": neighbours, **fan_out.parts()}
                given = {**arguments, "shared": shared}
                answer = self._take(step, given)
                if not answer.get("needs_archive"):
                    return answer
                why = str(answer.get("not_given", ""))[:MOST_CHARACTERS]
                display.display(f"  {host}: no neighbour gave {archive.name}, so the controller does: {why}")
                fan_out.mark_uploading(host)
            if login:
                arguments = {**arguments, "shared": {}}
            return self._send_and_run((step, arguments), archive, lambda: fan_out.mark_complete(host))


def described(step: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for the host; a source on the controller is replaced by its hash."""
    sent = {name: value for name, value in arguments.items() if name not in {"shared_by", "authority"}}
    if step == "content_release":
        source = Path(sent.pop("source"))
        if "release" not in sent:
            sent["release"] = content_hash(source)
    return sent


def pack(source: Path, archive: Path, package: str = "") -> None:
    """Write a tar archive of the content of `source`: owned by root, readable by all, without times."""
    with tarfile.open(archive, "w", dereference=True) as stream:
        for name, path in content_files(source).items():
            stream.add(path, str(Path(package, name)), recursive=False, filter=plain)
