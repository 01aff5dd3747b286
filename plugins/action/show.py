"""Shows one page: a table, a log, a verdict or TensorBoard."""

from collections.abc import Callable
from typing import Any

from ..plugin_utils.actions import ControllerAction
from ..plugin_utils.pages import doctor, log, proof, runs, status, tensorboard, verdict

PAGES: dict[str, Callable[..., dict[str, Any]]] = {
    module.__name__.rpartition(".")[2]: module.show_page
    for module in (doctor, log, proof, runs, status, tensorboard, verdict)
}


class ActionModule(ControllerAction):
    """Argument `page`, one of PAGES; the other arguments are those of its function, and so is the answer."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return PAGES[arguments.pop("page")](self, **arguments)
