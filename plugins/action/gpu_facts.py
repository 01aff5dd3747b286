"""Say what a host has of NVIDIA's. Its answer is looked at: roles go by it."""

from ..plugin_utils.actions import ModuleAction


class ActionModule(ModuleAction):
    """Arguments and answer are those of the module."""
