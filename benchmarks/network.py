"""Network namespaces, one for each task, joined by a switch that counts their bytes."""

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

# A process that is started with this is killed when its parent ends, even if the parent is killed.
_NO_LONGER_THAN_THIS = ("setpriv", "--pdeathsig", "KILL")
_NETWORK = "10.90.0"
PORT = 2222


class Hosts:
    """Unnamed network namespaces, which vanish once no process runs in them. They need root or `unshare -r`.

    Leaving the context ends the processes that hold them. Raises NetworkError if they cannot be made.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.addresses = {name: f"{_NETWORK}.{place}:{PORT}" for place, name in enumerate(names, 1)}
        self._holders: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> "Hosts":
        """Make the networks and the switch."""
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Close the networks."""
        self.close()

    def close(self) -> None:
        """End the processes that hold the networks."""
        for holder in self._holders.values():
            holder.kill()
            holder.communicate()
        self._holders.clear()

    def inside(self, name: str) -> list[str]:
        """Return the words before a command that make it run in this host's network."""
        return [*_NO_LONGER_THAN_THIS, "nsenter", f"--net={self.path(name)}"]

    def path(self, name: str) -> Path:
        """Return the file of a host's network namespace."""
        return Path(f"/proc/{self._holders[name].pid}/ns/net")

    def counters(self) -> dict[str, int]:
        """Return host -> bytes sent and received so far, all read at the same time."""
        table = Path(f"/proc/{self._holders['switch'].pid}/net/dev").read_text(encoding="utf-8")
        lines = [line.split() for line in table.replace(":", " ").splitlines()]
        return {line[0]: int(line[1]) + int(line[9]) for line in lines if line[0] in self.addresses}

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

    def _hold(self, name: str) -> None:
        there = ["unshare", "--net", "sh", "-c", "echo there; exec sleep infinity"]
        command = [*_NO_LONGER_THAN_THIS, *there]
        pipe = subprocess.PIPE
        holder = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
        self._holders[name] = holder
        with suppress(OSError):
            if holder.stdout and holder.stdout.readline():
                return
        raise NetworkError(f"no network of its own for {name}: {holder.communicate()[1].strip()}")

    def _ip(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [*self.inside(name), "ip", *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NetworkError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class NetworkError(Exception):
    """A network cannot be made; the message has the command and the reason."""
