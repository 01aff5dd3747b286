"""Bring what a run left on one host into the run's folder on the controller."""

import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any

from ansible.errors import AnsibleError
from ansible.utils.display import Display

from psfleet.carry import bounded_copy
from psfleet.carry.collected_archive import most_packed, shown, unpack
from psfleet.carry.collected_files import Places, allowed_files
from psfleet.carry.long_step import MEGABYTE

from ..plugin_utils.actions import AnswerError, HostAction
from ..plugin_utils.running import NotRunError

# As the module makes it. Any other path is one that a host thought out: fetching it could run commands here.
ARCHIVE = re.compile(r"(?:/var/tmp|/dev/shm)/psfleet-[A-Za-z0-9_]{8}\.tar\.gz")

USER = re.compile(r"[0-9]{1,10}")

SSH_FAILED = 255

display = Display()


class ActionModule(HostAction):
    """Pack on the host, fetch as the connecting user, unpack, remove the archive from the host.

    Arguments: `run` (of decide_run), `tasks` of the host, and those of `run_archive` that these do not say.
    Returns `files`, and `left_out`: what stays on the host, each with the reason.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        host = str(self.variables["inventory_hostname"])
        run, tasks = arguments.pop("run"), arguments.pop("tasks")
        arguments["run_id"] = run["id"]
        program = run["settings"].get("program")
        if program is not None:
            # What is in the directory of all tasks of a host comes with the first.
            names = [str(task["name"]) for task in tasks]
            names.sort(key=str(run["lead"]["name"]).__ne__)
            arguments |= {"names": names, "collect": program.get("collect", [])}
        packed = self._packed(arguments)
        if "path" not in packed:
            # What the others have left is collected and judged, and how the run ended is noted, in any case.
            left_out = [f"{host}: everything: {shown([packed.get('msg', 'no reason')])[0]}"]
            return {"changed": False, "files": [], "left_out": left_out}
        if self._task.check_mode:
            return packed
        for warning in shown(packed.get("warnings", ())):
            display.warning(f"{host}: {warning}")
        path, size = packed["path"], packed["size"]
        if not (isinstance(path, str) and ARCHIVE.fullmatch(path) and isinstance(size, int)):
            (path, size) = shown([path, size])
            return self._failure(f"{host} has packed {path} of {size} bytes; expected {ARCHIVE.pattern}")
        lead = str(run["lead"]["name"])
        hosts = [run["lead"]["host"], *(task["host"] for task in run["tasks"])]
        allowed = allowed_files(tasks, lead, program=program is not None)
        places = Places(Path(run["folder"]), host, hosts, allowed)
        most_bytes = int(arguments["limit_megabytes"]) * MEGABYTE
        try:
            names, refused = self._brought(packed, places, most_bytes)
        finally:
            with suppress(AnsibleError):  # what came is to be told, whatever becomes of the host
                self._low_level_execute_command(self._connection._shell.remove(path), sudoable=True)
        left_out = [f"{host}: {entry}" for entry in (*shown(packed["left_out"]), *shown(refused))]
        return {"changed": bool(names), "files": names, "left_out": left_out}

    def _login(self) -> int:
        """Return the number of the user that the connection logs in as, however that becomes root there."""
        said = str(self._low_level_execute_command("id -u", sudoable=False)["stdout"])
        found = USER.fullmatch(said.strip().rpartition("\n")[2])
        if not found:
            raise AnswerError(f"`id -u` as the user that logs in answered {shown([said])[0]}")
        return int(found[0])

    def _packed(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return what the module answers, with `msg` alone where that is of no use."""
        try:
            owned = {**arguments, "owner": self._login()}
            answer = self._take("run_archive", owned)
        except (AnswerError, NotRunError) as error:
            return {"msg": str(error)}
        return {"msg": answer.get("msg")} if answer.get("failed") else answer

    def _brought(
        self, packed: dict[str, Any], places: Places, most_bytes: int
    ) -> tuple[list[str], list[str]]:
        """Fetch and unpack; return the names of the files that came, and what did not with the reason."""
        if not 0 <= packed["size"] <= most_packed(most_bytes):
            return [], [f"everything: its archive has {packed['size']} bytes, more than it was asked for"]
        with tempfile.TemporaryDirectory() as directory:
            archive = Path(directory) / "run.tar.gz"
            try:
                problem = self._fetch(packed["path"], packed["size"], archive)
            except AnsibleError as error:
                problem = str(error)
            came = archive.stat().st_size if archive.exists() else 0
            names, refused = unpack(archive, places, most_bytes)
            if problem or came != packed["size"]:
                what = f"{came} of the {packed['size']} bytes of its archive came"
                refused.insert(0, f"{what}: {problem}" if problem else what)
            return names, refused

    def _fetch(self, path: str, size: int, target: Path) -> str:
        """Bring a file of the host that has `size` bytes; return what kept it from being brought whole.

        `fetch_file` of Ansible's connections writes whatever a host sends, for as long as it sends.
        """
        connection, read = self._connection, f"cat {quote(path)}"
        keeping = [sys.executable, "-IS", bounded_copy.__file__, str(target), str(size)]
        if connection.transport == "local":
            done = subprocess.run([*keeping, "sh", "-c", read], capture_output=True, text=True, check=False)
            return done.stdout or (f"exit code {done.returncode}" if done.returncode else "")
        if connection.transport != "ssh":
            return f"ansible_connection is {connection.transport}; expected ssh"
        program = connection.get_option("ssh_executable")
        for attempt in range(int(connection.get_option("reconnection_retries")) + 1):
            time.sleep(attempt)
            ssh = connection._build_command(program, "ssh", connection.host, read)
            status, told, _ = connection._bare_run([*keeping, *ssh], None, sudoable=False)
            if status != SSH_FAILED:
                break
        lost = "the connection was lost" if status == SSH_FAILED else f"exit code {status}"
        return told.decode(errors="replace") or (lost if status else "")
