"""Network namespaces, one for each task, joined by a switch that counts bytes; their speed may be limited."""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from benchmarks.cores import CoreShares

# A process started by this command is killed when its parent ends, even if the parent is killed.
_NO_LONGER_THAN_THIS = ("setpriv", "--pdeathsig", "KILL")
_NETWORK = "10.90.0"
PORT = 2222
# Only 20 kB may pass a limited link at once: a larger bucket would let all values of a small model pass
# unlimited.
_LARGEST_PACKET, _BUCKET, _QUEUE = 16_384, "20kb", "50ms"


@dataclass(frozen=True)
class Limits:
    """The limits of the hosts; they need root.

    - `megabits`: the speed of each host's link, in each direction, in Mbit/s; None: no limit.
    - `cores`: {task: its cores, such as 0.2}; a task that is not in it has no limit.
    """

    megabits: int | None = None
    cores: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


NO_LIMITS = Limits()


class Hosts:
    """A context with a network namespace for each task in `names`, its host, and a switch that joins them.

    `addresses` is {task: "IP:port"}. Entering it needs root or `unshare -r`, and raises NetworkError or
    CoresError if it fails. Leaving it removes the limits; a namespace vanishes once no process runs in it.
    """

    def __init__(self, names: Sequence[str], limits: Limits = NO_LIMITS) -> None:
        self.addresses = {name: f"{_NETWORK}.{place}:{PORT}" for place, name in enumerate(names, 1)}
        self._holders: dict[str, subprocess.Popen[str]] = {}
        self._megabits, self._shares = limits.megabits, CoreShares(limits.cores)

    def __enter__(self) -> "Hosts":
        """Make the namespaces, the switch and the limits; return this object."""
        try:
            self._shares.__enter__()
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Call `close`."""
        self.close()

    def close(self) -> None:
        """End the processes that keep the namespaces, and all processes of tasks with limited cores."""
        for holder in self._holders.values():
            holder.kill()
            holder.communicate()
        self._holders.clear()
        self._shares.close()

    def inside(self, name: str) -> list[str]:
        """Return the words to put before a command, so that it runs on the host of the task `name`.

        The command then has this host's limits.
        """
        return [*self._entering(name), *self._shares.inside(name)]

    def path(self, name: str) -> Path:
        """Return the path in /proc of the network namespace of task `name`."""
        return Path(f"/proc/{self._holders[name].pid}/ns/net")

    def counters(self) -> dict[str, tuple[int, int]]:
        """Return {task: bytes (received, sent) by its host so far}, all read at the same time."""
        table = Path(f"/proc/{self._holders['switch'].pid}/net/dev").read_text(encoding="utf-8")
        lines = [line.split() for line in table.replace(":", " ").splitlines()]
        # The switch sends what the host receives.
        return {line[0]: (int(line[9]), int(line[1])) for line in lines if line[0] in self.addresses}

    def _make(self) -> None:
        for name in ("switch", *self.addresses):
            self._hold(name)
            self._ip(name, "link", "set", "lo", "up")
        self._ip("switch", "link", "add", "bridge", "up", "type", "bridge")
        for name, address in self.addresses.items():
            ends = ["type", "veth", "peer", "name", "eth0", "netns", str(self._holders[name].pid)]
            self._ip("switch", "link", "add", "name", name, *ends)
            self._ip("switch", "link", "set", "dev", name, "master", "bridge", "up")
            self._ip(name, "address", "add", f"{address.partition(':')[0]}/24", "dev", "eth0")
            self._ip(name, "link", "set", "eth0", "up")
            if self._megabits is not None:
                self._limit(name, "eth0", self._megabits)
                self._limit("switch", name, self._megabits)

    def _limit(self, host: str, device: str, megabits: int) -> None:
        """Limit what a host sends through its network device `device` to `megabits` Mbit/s.

        `host` is the task's name, or "switch".
        """
        for command in limit_commands(device, megabits):
            self._run(host, *command)

    def _entering(self, name: str) -> list[str]:
        return [*_NO_LONGER_THAN_THIS, "nsenter", f"--net={self.path(name)}"]

    def _hold(self, name: str) -> None:
        namespace = ["unshare", "--net", "sh", "-c", "echo there; exec sleep infinity"]
        command = [*_NO_LONGER_THAN_THIS, *namespace]
        pipe = subprocess.PIPE
        holder = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
        self._holders[name] = holder
        with suppress(OSError):
            if holder.stdout and holder.stdout.readline():
                return
        raise NetworkError(f"no network of its own for {name}: {holder.communicate()[1].strip()}")

    def _ip(self, name: str, *arguments: str) -> None:
        self._run(name, "ip", *arguments)

    def _run(self, name: str, *command: str) -> None:
        done = subprocess.run([*self._entering(name), *command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise NetworkError(f"{' '.join(command)}: {done.stderr.strip()}")


def limit_commands(device: str, megabits: int) -> tuple[list[str], list[str]]:
    """Return the two commands that limit what a network device sends to `megabits` Mbit/s."""
    speed = ["rate", f"{megabits}mbit", "burst", _BUCKET, "latency", _QUEUE]
    return (
        ["ip", "link", "set", "dev", device, "gso_max_size", str(_LARGEST_PACKET)],
        ["tc", "qdisc", "replace", "dev", device, "root", "tbf", *speed],
    )


class NetworkError(Exception):
    """A network cannot be made; the message has the command and the reason."""
