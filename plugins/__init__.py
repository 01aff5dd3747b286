"""Ansible executes this before any module, action or filter of the collection: here they find the packages.

`trainer` and `psfleet` lie beside this folder and are not installed.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
