"""The commands by which logs.yml reads the log of a task from its host, and their answers."""

import base64
import shlex

from psfleet.watch.lead_reading import SEPARATOR, as_daemon
from trainer.contract.progress import as_drawn
from trainer.host.task_units import is_alive, parse_show

# The most bytes in one answer, and the most that is read of what the log had before. The collected log has
# all.
MOST_BYTES = 256 * 1024


class FollowedLog:
    """The log of a task, read piece by piece. The first piece shows its last `lines` lines.

    `behind` is True if the host has more of the log than was read, `alive` if the task may still write to it;
    both are True before the first `read`.
    """

    def __init__(self, path: str, unit: str, user: str, lines: int) -> None:
        """Take the log's path and the task's unit on the host, and the group `user`, which may read the log.

        `lines` is the number of old lines that the first piece shows.
        """
        self._path, self._unit, self._user, self._lines = shlex.quote(path), unit, user, lines
        self._offset: int | None = None
        self._rest = b""
        self.behind = self.alive = True

    @property
    def command(self) -> str:
        """The shell command to run on the host next; `read` takes its output.

        The first command asks only for the size of the log, each later one for at most 256 KiB of new
        content.
        """
        reading = f"stat -Lc %s {self._path}"
        if self._offset is not None:
            # Reading a FIFO would wait for a writer.
            rest = f"timeout 10 tail -c +{self._offset + 1} {self._path}"
            reading = f"{reading} && {rest} | head -c {MOST_BYTES} | base64 -w0"
        state = f"systemctl show --property=ActiveState,Job {self._unit}; echo {SEPARATOR}"
        return f"{state}; {as_daemon(self._user, 'sh', '-c', reading)}"

    def read(self, answer: str) -> list[str]:
        """Return the complete new lines in the output of `command`, made safe to show; [] if there are none.

        An incomplete last line is kept for the next call, or returned if the task has ended. [] also for the
        first output, and if the log has shrunk: then it is read anew. Raises ValueError if the output is not
        that of the command.
        """
        shown, _, reading = answer.partition(SEPARATOR)
        self.alive = any(map(is_alive, parse_show(shown)))
        size, *encoded = reading.split()
        if self._offset is None or int(size) < self._offset:
            # This is the first answer, or the file has shrunk.
            self._offset, self._rest = max(int(size) - MOST_BYTES, 0), b""
            return []
        new = base64.b64decode("".join(encoded), validate=True)[:MOST_BYTES]
        self._offset += len(new)
        self.behind = self._offset < int(size)
        *lines, self._rest = (self._rest + new).split(b"\n")
        if self._rest and not (self.alive or self.behind):
            lines.append(self._rest)
        most, self._lines = self._lines, MOST_BYTES
        return [as_drawn(line.decode(errors="replace")) for line in lines[-most:]]
