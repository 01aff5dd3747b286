"""Names in tasks that otherwise only a run of the task would check."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.repository import ROOT

ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())


def tasks_of(role: str, folder: str) -> Iterator[dict[str, Any]]:
    """Yield all tasks of a role, also those in blocks."""

    def within(tasks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for task in tasks or ():
            yield task
            for part in ("block", "rescue", "always"):
                yield from within(task.get(part, []))

    for file in sorted((ROOT / "roles" / role / folder).glob("*.yml")):
        yield from within(yaml.safe_load(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("role", ROLES)
def test_a_notified_handler_exists(role: str) -> None:
    notified = {task["notify"] for task in tasks_of(role, "tasks") if "notify" in task}
    assert notified == {handler["name"] for handler in tasks_of(role, "handlers")}


@pytest.mark.parametrize("role", ROLES)
def test_registered_names_of_a_role_are_private(role: str) -> None:
    """The next playbook of the same command refuses unknown variables with a role's prefix."""
    registered = [task["register"] for task in tasks_of(role, "tasks") if "register" in task]
    assert [name for name in registered if not name.startswith("__")] == []
