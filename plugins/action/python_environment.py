"""Installs a Python environment on a host, and carries its wheels if the host lacks them."""

from ..plugin_utils.carrying import CarryingAction


class ActionModule(CarryingAction):
    """Arguments: those of the module; `wheels` as `wheel_store` describes them, with their archive here.

    Hosts take the archive from each other through the account `shared_by`, unless that is "".
    """
