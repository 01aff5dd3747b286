"""Installs a Python environment on a host, and carries its wheels if the host lacks them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible import constants

from psfleet.carry.fan_out import FanOut
from psfleet.carry.long_step import REPORT_SECONDS, bytes_read, report_progress
from psfleet.watch.terminal import escaping_display

from ..plugin_utils.carrying import CarryingAction

display = escaping_display()
# The most characters of a host's message about its neighbours.
MOST_CHARACTERS = 500


class ActionModule(CarryingAction):
    """Returns the answer of the module; carries the archive only if the host needs it.

    Takes the arguments of the module; `wheels` is what `wheel_store` returned for the host's environment.
    Hosts take the archive from each other through the account `shared_by`, unless that is "".
    """

    def _for_host(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in arguments.items() if name != "shared_by"}

    def _carry(self, sent: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Get the archive to this host, run the module again, and return the module's answer.

        The controller sends the archive to the first host. Later hosts wait until a neighbour can give it;
        without `shared_by`, and if no neighbour gives it, the controller sends it to them, too.
        """
        archive, login = Path(arguments["wheels"]["archive"]), arguments.get("shared_by", "")
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
                answer = self._run({**sent, "shared": shared})
                if not answer.get("needs_archive"):
                    return answer
                why = str(answer.get("not_given", ""))[:MOST_CHARACTERS]
                display.display(f"  {host}: no neighbour gave {archive.name}, so the controller does: {why}")
                fan_out.mark_uploading(host)
            values = {**sent, "shared": {}} if login else sent
            return self._send_and_run(values, archive, lambda: fan_out.mark_complete(host))
