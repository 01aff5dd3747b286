"""Shows one page: a table, a log, a verdict or TensorBoard."""

from importlib import import_module
from typing import Any

from ..plugin_utils.actions import ControllerAction

PAGES = ("doctor", "log", "proof", "runs", "status", "tensorboard", "verdict")


class ActionModule(ControllerAction):
    """Calls `show_page` of the `page`, such as "status", with the other arguments; returns its result."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        page = arguments.pop("page")
        if page not in PAGES:
            return self._failure(f"page is {page!r}; expected one of {', '.join(PAGES)}")
        # A page needs packages that the others do without.
        module = import_module(f"..plugin_utils.pages.{page}", __package__)
        answer: dict[str, Any] = module.show_page(self, **arguments)
        return answer
