"""Makes `trainer`, `psfleet` and `plugins.module_utils` importable: Ansible runs this before anything here.

The packages are not installed: they lie in the same folder as `plugins`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
