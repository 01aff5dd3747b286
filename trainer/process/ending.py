"""How a task left, in a file of its run directory: systemd forgets all of a unit that has ended well."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trainer.contract.json_files import write_json
from trainer.process.console import say


def tell_ending(run_directory: Path | None, task: str, work: Callable[[], int]) -> int:
    """Do the work of a task, write the exit code where `trainer.host.task_traces` reads it, and return it.

    What an earlier process has told is removed first. A disk that takes nothing is told of.
    """
    if run_directory is None:
        return work()
    file = run_directory / "endings" / f"{task}.json"
    with suppress(OSError):
        file.unlink(missing_ok=True)
    exit_code = work()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"exit_code": exit_code})
    except OSError as error:
        say(f"How this task ends cannot be written to {file}: {error.strerror}")
    return exit_code
