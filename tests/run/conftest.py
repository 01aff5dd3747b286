"""Let the modules find their module_utils here, as Ansible does when it carries them to a host."""

import importlib
import sys

for folder, names in {
    "plugins.module_utils": ["unit_traffic"],
    "trainer.host": ["safe_directory", "task_traces", "task_units"],
}.items():
    for name in names:
        sys.modules[f"ansible.module_utils.{name}"] = importlib.import_module(f"{folder}.{name}")
