"""Makes `trainer`, `psfleet` and `plugins.module_utils` importable: Ansible runs this before anything here.

The packages are not installed: they lie in the same folder as `plugins`. A file of filters is
loaded without its package by `ansible-doc`, so it asks for this by `from .. import COLLECTION`.
"""

import sys
from pathlib import Path

COLLECTION = Path(__file__).resolve().parents[1]

sys.path.insert(0, str(COLLECTION))
