"""Starts the observer: Python runs this file before a program, because its folder is the first of PYTHONPATH.

See https://docs.python.org/3/library/site.html#module-sitecustomize. This file also runs the sitecustomize
that Python would have run without it.
"""

from pathlib import Path

import psfleet_imports
import psfleet_observer

psfleet_observer.begin()
psfleet_imports.run_next_sitecustomize(Path(__file__).parent)
