"""The filter `with_inventory`."""

from collections.abc import Callable

from psfleet.watch.hints import with_inventory


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {"with_inventory": with_inventory}
