"""Makes the packages `trainer` and `psfleet` importable: Ansible runs this before anything in plugins/.

Both lie beside this folder and are not installed.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
