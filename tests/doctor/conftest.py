"""Let the modules find their module_utils here, as Ansible does when it carries them to a host."""

import importlib
import sys

for folder, names in {
    "trainer.host": [
        *("check", "environment", "safe_directory", "task_traces", "task_units"),
        *("host_facts", "host_checks", "nvidia", "gpu_checks"),
        *("deployment", "name_checks", "port_checks"),
    ],
    "plugins.module_utils": ["content_directory", "disk_space", "disk_check", "doctor_units"],
}.items():
    for name in names:
        sys.modules[f"ansible.module_utils.{name}"] = importlib.import_module(f"{folder}.{name}")
