"""How a task left, in a file of its run directory: systemd forgets all of a unit that has ended well."""

from contextlib import suppress
from pathlib import Path

from trainer.contract.json_files import write_json
from trainer.process.console import say
from trainer.process.flags import Options


def begin_without_ending(options: Options) -> None:
    """Remove what an earlier process of the task has told."""
    if options.run_directory is not None:
        with suppress(OSError):
            _file(options).unlink(missing_ok=True)


def write_ending(options: Options, exit_code: int) -> None:
    """Tell the exit code; a disk that refuses it is told of, and changes nothing."""
    if options.run_directory is None:
        return
    try:
        _file(options).parent.mkdir(parents=True, exist_ok=True)
        write_json(_file(options), {"exit_code": exit_code})
    except OSError as error:
        say(f"How this task ends cannot be written in {options.run_directory}: {error.strerror}")


def _file(options: Options) -> Path:
    # The module trainer_tasks reads it there (trainer/host/task_traces.py).
    return (options.run_directory or Path()) / "endings" / f"{options.cluster.task}.json"
