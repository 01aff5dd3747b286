"""Let the modules find their module_utils here, as Ansible does when it carries them to a host."""

import importlib
import sys

NAME = "content_directory"
sys.modules[f"ansible.module_utils.{NAME}"] = importlib.import_module(f"plugins.module_utils.{NAME}")
