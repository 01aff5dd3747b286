"""A share of a core for each task: control groups of Linux, version 1 or 2, with quotas of CPU time."""

import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# With a short period a group is like a slow core, and not like a core that is often suspended.
_PERIOD_MICROSECONDS = 20_000
_TOP = "psfleet-bench"
# A script that removes the groups once its standard input ends: at the latest when this process ends.
_KEEPER = """\
cat > /dev/null
for pause in 0 0.1 0.2 0.5 1 2 5; do
  sleep $pause
  left=
  for group; do
    [ -d "$group" ] || continue
    kill -KILL $(cat "$group/cgroup.procs")
    rmdir "$group" || left=yes
  done
  [ "$left" ] || exit 0
done 2> /dev/null
exit 1
"""


class CoresError(Exception):
    """The control groups cannot be made or removed; the message has the reason."""


@dataclass(frozen=True)
class Hierarchy:
    """The mounted control groups that limit CPU time: their `folder`, and their `version` (1 or 2)."""

    folder: Path
    version: int

    def files(self, cores: float) -> dict[str, str]:
        """Return {name of a file of a group: content}.

        With this content, the group gets `cores` cores, such as 0.2.
        """
        period, quota = _PERIOD_MICROSECONDS, round(cores * _PERIOD_MICROSECONDS)
        if self.version == 1:
            return {"cpu.cfs_period_us": f"{period}", "cpu.cfs_quota_us": f"{quota}"}
        return {"cpu.max": f"{quota} {period}"}


def hierarchy_in(mounts: str) -> Hierarchy | None:
    """Return the control groups that limit CPU time; None if there are none.

    `mounts` is the text of /proc/mounts. Version 1 with the controller `cpu` has precedence over version 2.
    """
    lines = [line.split() for line in mounts.splitlines()]
    for _, folder, kind, options, *_ in lines:
        if kind == "cgroup" and "cpu" in options.split(","):
            return Hierarchy(Path(folder), 1)
    return next((Hierarchy(Path(folder), 2) for _, folder, kind, *_ in lines if kind == "cgroup2"), None)


class CoreShares:
    """A context with a control group for each task, which limits the task to a share of the cores.

    Entering it needs root, and raises CoresError if the groups cannot be made. Leaving it ends the processes
    that still run in the groups, and removes the groups; so does the end of this process, however it ends.
    """

    def __init__(self, cores: Mapping[str, float]) -> None:
        """Prepare the groups; `cores` is {task: how many cores, such as 0.2}. Other tasks have no limit."""
        self._cores = cores
        self._top = Path()
        self._keeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "CoreShares":
        """Make the groups, none if no task has a limit; return this object."""
        if self._cores:
            try:
                self._make()
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        """Call `close`."""
        self.close()

    def close(self) -> None:
        """Kill what runs in the groups, and remove the groups; do nothing if there are none.

        Raises CoresError if a group is left.
        """
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.communicate()
            if keeper.returncode:
                raise CoresError(f"not all control groups could be removed: {self._top}")

    def inside(self, name: str) -> list[str]:
        """Return the words to put before a command, so that it runs in the group of the task `name`.

        Return [] for a task without a limit.
        """
        if name not in self._cores:
            return []
        enter = 'echo $$ > "$0" && exec "$@"'
        return ["/bin/sh", "-c", enter, str(self._top / name / "cgroup.procs")]

    def _make(self) -> None:
        hierarchy = hierarchy_in(Path("/proc/mounts").read_text(encoding="utf-8"))
        if hierarchy is None:
            raise CoresError("no control groups are mounted")
        self._top = hierarchy.folder / f"{_TOP}-{os.getpid()}"
        groups = [self._top / name for name in self._cores]
        try:
            # Started before the first group is made, so that the groups are removed even if this process is
            # killed then.
            self._keeper = subprocess.Popen(
                ["/bin/sh", "-c", _KEEPER, "sh", *map(str, groups), str(self._top)],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
            self._top.mkdir()
            if hierarchy.version == 2:
                with suppress(OSError):  # "cpu" may be there already; if not, cpu.max is missing below
                    _write(hierarchy.folder / "cgroup.subtree_control", "+cpu")
                _write(self._top / "cgroup.subtree_control", "+cpu")
            for group, cores in zip(groups, self._cores.values(), strict=True):
                group.mkdir()
                for file, content in hierarchy.files(cores).items():
                    _write(group / file, content)
        except OSError as error:
            raise CoresError(f"{error.filename}: {error.strerror}") from error


def _write(path: Path, content: str) -> None:
    """Write to a file of the kernel, which must exist. Raises OSError."""
    with path.open("r+", encoding="utf-8") as stream:
        stream.write(content)
