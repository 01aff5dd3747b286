"""Starts the observer: Python runs this before a program, because this folder is the first of PYTHONPATH.

See https://docs.python.org/3/library/site.html#module-sitecustomize. It also runs the sitecustomize that
Python would have run without this one.
"""

from pathlib import Path

import psfleet_imports
import psfleet_observer

psfleet_observer.begin()
psfleet_imports.run_next_sitecustomize(Path(__file__).parent)
