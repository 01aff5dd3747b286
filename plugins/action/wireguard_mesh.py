"""Have a host make its key of the mesh, or its side of it. Its answer is looked at: the others go by it."""

from ..plugin_utils.actions import ModuleAction


class ActionModule(ModuleAction):
    """Arguments and answer are those of the module."""
