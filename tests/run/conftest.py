"""Let the modules find their module_utils here, as Ansible does when it carries them to a host."""

import importlib
import sys

for name in ("safe_directory", "task_traces", "unit_traffic"):
    sys.modules[f"ansible.module_utils.{name}"] = importlib.import_module(f"plugins.module_utils.{name}")
