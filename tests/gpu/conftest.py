"""Let the module find its module_utils here, as Ansible does when it carries them to a host."""

import importlib
import sys

for name in ("check", "driver_packages", "gpu_checks", "host_facts", "nvidia"):
    sys.modules[f"ansible.module_utils.{name}"] = importlib.import_module(f"trainer.host.{name}")
