"""Say which environment a host gets. Its answer is looked at: a wrong one would end all hosts' deployment."""

from ..plugin_utils.actions import ModuleAction


class ActionModule(ModuleAction):
    """Arguments and answer are those of the module."""
