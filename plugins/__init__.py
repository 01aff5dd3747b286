"""Makes `trainer`, `psfleet` and `plugins.module_utils` importable. Ansible runs this before any plugin.

The packages are not installed: they are in the same folder as `plugins`. `ansible-doc` loads a file of
filters without its package, so such a file runs this with `from .. import COLLECTION`.
"""

import sys
from pathlib import Path

COLLECTION = Path(__file__).resolve().parents[1]

sys.path.insert(0, str(COLLECTION))
