"""How long a task may take to end, and the time that its unit allows."""

import re

from tests.repository import ROOT
from trainer.process import stop_request


def test_a_task_ends_by_itself_before_its_unit_ends_it() -> None:
    unit = (ROOT / "roles/trainer/templates/task.service.j2").read_text()
    granted = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert granted == [f"{stop_request._UNIT_SECONDS:.0f}"]
    assert stop_request._SECONDS_TO_STOP + 5 <= stop_request._UNIT_SECONDS
