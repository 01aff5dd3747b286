"""The number of starts of a task in a row without progress; systemd only counts starts."""

from contextlib import suppress
from pathlib import Path

from trainer.contract.exit_codes import FINISHED, GIVEN_UP, NO_RESTART, STOPPED
from trainer.contract.json_files import read_object, write_json
from trainer.host.task_traces import last_failure
from trainer.process.failure import TaskFailure

# More than the starts that the unit allows in a minute, so that systemd gives up a task that dies at once.
_MOST_IN_VAIN = 6
_IN_VAIN = "in_vain"


class Lives:
    """Counts how many processes of a task in a row made no progress.

    The number is in the file endings/<task>.lives.json of the run directory, so it lasts over restarts.
    """

    def __init__(self, run_directory: Path | None, task: str) -> None:
        """Choose the file, without reading it; without a run directory (None), nothing is counted."""
        self._file = run_directory / "endings" / f"{task}.lives.json" if run_directory else None
        self._events = (run_directory or Path()) / "events" / f"{task}.jsonl"
        self._made_progress = False

    def begin(self) -> None:
        """Count this process as one without progress, until `note_progress` is called.

        Raises TaskFailure (`given_up`) if the six processes before this one made no progress.
        """
        before = read_object(self._file).get(_IN_VAIN) if self._file else 0
        count = before if isinstance(before, int) and before > 0 else 0
        if count >= _MOST_IN_VAIN:
            last = f"; the last time: {reason}" if (reason := last_failure(self._events)) else ""
            raise TaskFailure(GIVEN_UP, f"it was started {count} times in a row without getting on{last}")
        self._write(count + 1)

    def note_progress(self) -> None:
        """Set the count to 0, because this process made progress; only the first call writes."""
        if not self._made_progress:
            self._made_progress = True
            self._write(0)

    def end(self, exit_code: int) -> None:
        """Set the count to 0 if systemd does not restart a task after this exit code; else do nothing.

        The next start is then by people.
        """
        if exit_code in {FINISHED, STOPPED, *NO_RESTART}:
            self._write(0)

    def _write(self, count: int) -> None:
        if self._file is None:
            return
        with suppress(OSError):  # on a full disk the count stays as it is
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._file, {_IN_VAIN: count})
