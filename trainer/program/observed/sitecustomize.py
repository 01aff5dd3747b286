"""Python runs this before a program that psfleet launches, for this folder is in front of PYTHONPATH.

https://docs.python.org/3/library/site.html#module-sitecustomize. Another one that the host or the program has
is run as it would be without this one.
"""

from pathlib import Path

import psfleet_imports
import psfleet_observer

psfleet_observer.begin()
psfleet_imports.run_next_sitecustomize(Path(__file__).parent)
