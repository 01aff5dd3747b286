"""Puts a release on a host, and carries its files if the host lacks them."""

from ..plugin_utils.carrying import CarryingAction


class ActionModule(CarryingAction):
    """Arguments: those of the module, and `source`, a file or folder here, whose hash is the `release`."""
