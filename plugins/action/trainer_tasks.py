"""Start, stop and describe the tasks of a host. Its answer is looked at: the controller computes with it."""

from ..plugin_utils.actions import ModuleAction


class ActionModule(ModuleAction):
    """Arguments and answer are those of the module."""
