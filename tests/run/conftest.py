"""Let the modules find their module_utils here, as Ansible does when it carries them to a host."""

import importlib
import sys

for folder, names in {
    "trainer.host": ["check", "environment", "safe_directory", "task_traces", "task_units", "deployment"],
    "plugins.module_utils": ["unit_traffic", "task_details"],
}.items():
    for name in names:
        sys.modules[f"ansible.module_utils.{name}"] = importlib.import_module(f"{folder}.{name}")
