"""Say which environment a host gets. One whose clock is too far from that of the controller is refused."""

import time
from typing import Any

from trainer.host.clock_checks import clock_check, clock_offset

from ..plugin_utils.actions import HostAction


class ActionModule(HostAction):
    """Arguments and answer are those of the module."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        asked = time.time()
        answer = self._run_module(arguments)
        if "clock" in answer:
            found = clock_check(*clock_offset(asked, answer["clock"], answer["clock"], time.time()))
            if found.state == "failed":
                why = f"its clock is {found.found}: {found.remedy}. Nothing was changed there."
                return self._failure(f"{arguments['host']} cannot be part of the cluster: {why}")
        return answer
