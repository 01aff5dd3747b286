"""Import hooks for a program that psfleet launches: they call functions after modules were imported."""

from __future__ import annotations

import functools
import gc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_TENSORFLOW = "tensorflow"


class AfterLoading(MetaPathFinder):
    """An import hook that calls functions with modules once they are loaded.

    While `tensorflow` is loaded, Python's garbage collector is off; the import then takes three fifths of the
    time.
    """

    def __init__(self, functions: Mapping[str, Callable[[ModuleType], object]]) -> None:
        """Once a module is loaded that is a key of `functions`, call the function with the module."""
        self._functions = functions

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that later finders find; its loader also calls the function once it has loaded.

        Return None for modules that need neither a function nor the collector off, and if no finder finds the
        module.
        """
        if fullname not in self._functions and fullname != _TENSORFLOW:
            return None
        after = sys.meta_path[sys.meta_path.index(self) + 1 :]
        specs = (finder.find_spec(fullname, path, target) for finder in after if hasattr(finder, "find_spec"))
        spec = next(filter(None, specs), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module
            then = self._functions.get(fullname, _nothing)
            spec.loader.exec_module = functools.partial(_load, load, then)  # type: ignore[method-assign]
        return spec


def or_leave(wrap: Callable[[ModuleType], object]) -> Callable[[ModuleType], None]:
    """Return `wrap` made safe: if it raises, a line in the log says that the module stays as it is."""

    def call(module: ModuleType) -> None:
        try:
            wrap(module)
        except Exception as error:
            sys.stderr.write(f"psfleet: {module.__name__} stays as it is ({type(error).__name__}: {error})\n")

    return call


def run_next_sitecustomize(folder: Path) -> None:
    """Run the `sitecustomize` that Python would have run without `folder`; nothing if there is none."""
    places = [Path(place).resolve() for place in sys.path]
    after = places.index(folder.resolve()) + 1 if folder.resolve() in places else 0
    spec = PathFinder.find_spec("sitecustomize", sys.path[after:])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _load(
    load: Callable[[ModuleType], None], then: Callable[[ModuleType], object], module: ModuleType
) -> None:
    if module.__name__ == _TENSORFLOW:
        with _collector_away():
            load(module)
    else:
        load(module)
    then(module)


def _nothing(_module: ModuleType) -> None:
    """Do nothing with a module."""


@contextmanager
def _collector_away() -> Iterator[None]:
    """Switch the garbage collector off in this context, unless the program has switched it off.

    trainer/process/loading.py does the same.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
