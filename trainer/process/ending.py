"""Writes a task's exit code into a file of the run directory, because systemd forgets units that end well."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trainer.contract.json_files import write_json
from trainer.process.console import say


def with_ending_file(run_directory: Path | None, task: str, work: Callable[[], int]) -> int:
    """Call `work` and return its exit code; also write the code into endings/<task>.json.

    The path is relative to the run directory. The file of an earlier process is removed first, and stays away
    if `work` raises. If the file cannot be written, a line is printed. Without a run directory (None) nothing
    is written.
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
