"""Let the modules find their module_utils here, as Ansible does when it carries them to a host."""

import importlib
import sys

for folder, names in {
    "trainer.host": [
        "check",
        "environment",
        "host_checks",
        "host_facts",
        "safe_directory",
        "task_units",
    ],
    "plugins.module_utils": ["content_directory", "disk_space", "carried_record", "metrics_timer"],
}.items():
    for name in names:
        sys.modules[f"ansible.module_utils.{name}"] = importlib.import_module(f"{folder}.{name}")
