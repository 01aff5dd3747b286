"""Device filters for sessions, so that they see only the parameter servers and their own task.

Without `device_filters` a session waits for every task of the cluster, even for a task that has ended.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

from psfleet_own_disk import own_device, servers, tasks_in

_PS = "ps"


def filter_sessions(module: ModuleType) -> None:
    """Wrap sessions, so that a session to this process's server waits only for the ps and this task.

    Filters that the program gives stay. If the graph has operations on other tasks, a line is printed, and
    the session is not filtered.
    """
    initialise = module.BaseSession.__init__

    @functools.wraps(initialise)
    def filtering(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
        own = own_device() if isinstance(target, str) and target in servers else ""
        if own and not (config and config.device_filters):
            if _uses_others(graph or module.ops.get_default_graph(), own):
                sys.stderr.write(
                    "psfleet: its graph is on other tasks, too: this session waits for all tasks\n"
                )
            else:
                filtered = module.config_pb2.ConfigProto()
                filtered.CopyFrom(config or module.context.context().config)
                filtered.device_filters.extend([f"/job:{_PS}", own])
                config = filtered
        initialise(self, target, graph, config)

    module.BaseSession.__init__ = filtering


def _uses_others(graph: Any, own: str) -> bool:
    """Return whether a graph has operations on a task other than the ps and `own`, the device of this task.

    Operations without a job in their device do not count.
    """
    from tensorflow.python.framework.device_spec import DeviceSpecV2

    mine = DeviceSpecV2.from_string(own)
    others = {(job, index) for job, index in tasks_in(graph) if job != _PS}
    return not others <= {(mine.job, mine.task), (mine.job, None)}
