"""What logs.yml asks the host of a task for what it prints, and what the answers mean."""

import base64
import shlex

from psfleet.watch.lead_reading import SEPARATOR, as_daemon
from trainer.contract.progress import as_drawn
from trainer.host.task_units import is_alive, parse_show

# Of one answer, and of what was there before the first: what is further back is for the collected log.
MOST_BYTES = 256 * 1024


class FollowedLog:
    """The log of a task, asked for again and again; at first its last `lines` are shown.

    `behind` says whether there is more already, `alive` whether more may come.
    """

    def __init__(self, path: str, unit: str, user: str, lines: int) -> None:
        """Take path and unit on the host, and the group that may read there."""
        self._path, self._unit, self._user, self._lines = shlex.quote(path), unit, user, lines
        self._offset: int | None = None
        self._rest = b""
        self.behind = self.alive = True

    @property
    def command(self) -> str:
        """The command that prints what `read` takes, for the shell of the host."""
        reading = f"stat -Lc %s {self._path}"
        if self._offset is not None:
            # A FIFO is waited for.
            rest = f"timeout 10 tail -c +{self._offset + 1} {self._path}"
            reading = f"{reading} && {rest} | head -c {MOST_BYTES} | base64 -w0"
        state = f"systemctl show --property=ActiveState,Job {self._unit}; echo {SEPARATOR}"
        return f"{state}; {as_daemon(self._user, 'sh', '-c', reading)}"

    def read(self, answer: str) -> list[str]:
        """Return the lines that are new, as people may see them.

        Raises ValueError where the host printed no such answer.
        """
        shown, _, told = answer.partition(SEPARATOR)
        self.alive = any(map(is_alive, parse_show(shown)))
        size, *encoded = told.split()
        if self._offset is None or int(size) < self._offset:
            # The first answer, or the file was cut since.
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
