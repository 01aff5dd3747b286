"""Python runs this before a program that psfleet launches, for this folder is the first of PYTHONPATH.

https://docs.python.org/3/library/site.html#module-sitecustomize. Another one that the host or the program has
is run as it would be without this one.
"""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import psfleet_observer


def _run_the_next() -> None:
    own = Path(__file__).resolve().parent
    spec = PathFinder.find_spec(
        "sitecustomize", [place for place in sys.path if Path(place).resolve() != own]
    )
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


psfleet_observer.begin()
_run_the_next()
