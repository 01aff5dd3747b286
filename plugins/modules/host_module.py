"""The documentation of the action of this name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_module
short_description: run another module of this collection, and check what the host answers
description:
  - >-
      No Ansible task names this action. C(meta/runtime.yml) lists the modules that it runs. It takes the arguments of
      the module, and returns the module's answer.
  - Only the fields that the module documents are kept. If one is missing or has another type, the action fails.
author: psfleet (@psfleet)
attributes:
  check_mode:
    support: full
    description: As the module.
"""

EXAMPLES = r"""
# meta/runtime.yml
plugin_routing:
  modules:
    host_lease: {action_plugin: psfleet.cluster.host_module}
"""

RETURN = "{}"
