"""Collects the files of a run from one host into the run's folder on the controller."""

import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from shlex import join, quote
from typing import Any

from ansible import constants
from ansible.errors import AnsibleConnectionFailure, AnsibleError

from psfleet.carry import bounded_copy
from psfleet.carry.collected_archive import most_archive_bytes, printable_lines, unpack
from psfleet.carry.collected_files import INCOMING, Places, allowed_names, export_names, wanted_folders
from psfleet.carry.deadlines import TooLateError, within
from psfleet.carry.long_step import MEGABYTE
from psfleet.carry.marked_output import new_marker
from psfleet.watch.terminal import escaping_display
from trainer.contract.export import EXPORT

from ..plugin_utils.actions import AnswerError, HostAction
from ..plugin_utils.running import NotRunError

# The paths that the module gives to archives. A host could invent any other path, and fetching that could run
# commands on the controller.
ARCHIVE = re.compile(r"(?:/var/tmp|/dev/shm)/psfleet-[A-Za-z0-9_]{8}\.tar\.gz")

# A host that has not packed its files by then is given up; else it could keep the run from ending.
PATIENCE_SECONDS, LEAST_MEGABYTES_A_SECOND = 300.0, 5.0

USER = re.compile(r"[0-9]{1,10}")

display = escaping_display()


class ActionModule(HostAction):
    """Packs files on the host, fetches the archive, unpacks it into the run's folder, and removes it there.

    Returns `changed`, `files` (the names of the collected files) and `left_out` (texts "host: file: reason").
    If the host cannot pack its files, the action does not fail: `left_out` has "host: everything: reason".
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        host = str(self.variables["inventory_hostname"])
        run, tasks = arguments.pop("run"), arguments.pop("tasks")
        exported = bool(arguments.pop("exported", False))
        patience = float(arguments.pop("patience_seconds", PATIENCE_SECONDS))
        arguments["run_id"], lead = run["id"], str(run["lead"]["name"])
        program = run["settings"].get("program")
        if program is not None:
            # Files in the directory of all tasks of a host come with its first task.
            names = [str(task["name"]) for task in tasks]
            names.sort(key=lead.__ne__)
            arguments |= {"names": names, "collect": program.get("collect", [])}
        if exported:
            arguments["folders"] = [EXPORT]
        elif not arguments.get("folders"):
            arguments["folders"] = wanted_folders(tasks, lead, program=program is not None)
        try:
            with within(patience + int(arguments["limit_megabytes"]) / LEAST_MEGABYTES_A_SECOND):
                packed = self._pack_on_host(arguments)
        except TooLateError as late:
            packed = {"msg": f"packing its files took longer than {late}"}
        if "path" not in packed:
            # The files of other hosts are collected and judged, and the run's end is recorded, in any case.
            left_out = [f"{host}: everything: {printable_lines([packed.get('msg', 'no reason')])[0]}"]
            return {"changed": False, "files": [], "left_out": left_out}
        if self._task.check_mode:
            return packed
        for warning in printable_lines(packed.get("warnings", ())):
            display.warning(f"{host}: {warning}")
        path, size = packed["path"], packed["size"]
        if not (isinstance(path, str) and ARCHIVE.fullmatch(path) and isinstance(size, int)):
            (path, size) = printable_lines([path, size])
            return self._failure(f"{host} has packed {path} of {size} bytes; expected {ARCHIVE.pattern}")
        hosts = [run["lead"]["host"], *(task["host"] for task in run["tasks"])]
        allowed, folder = allowed_names(tasks, lead, program=program is not None), Path(run["folder"])
        if exported:
            allowed, folder = export_names(), folder / INCOMING
            shutil.rmtree(folder, ignore_errors=True)
        places = Places(folder, host, hosts, allowed)
        most_bytes = int(arguments["limit_megabytes"]) * MEGABYTE
        try:
            names, refused = self._fetch_and_unpack(packed, places, most_bytes)
        finally:
            # The collected files count, whatever happens to the host.
            with suppress(AnsibleError, TooLateError), within(patience):
                self.run_command(f"rm -f {quote(path)}")
        left_out = [
            f"{host}: {entry}" for entry in (*printable_lines(packed["left_out"]), *printable_lines(refused))
        ]
        return {"changed": bool(names), "files": names, "left_out": left_out}

    def _login(self) -> int:
        """Return the uid of the user as whom the connection logs in, before it becomes another user.

        Raises AnswerError if the host's answer is not a number.
        """
        printed, _ = self.run_command("id -u", sudoable=False)
        found = USER.fullmatch(printed.strip())
        if not found:
            raise AnswerError(f"`id -u` as the user that logs in answered {printable_lines([printed])[0]}")
        return int(found[0])

    def _pack_on_host(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of the module `host_runs`; {"msg": reason} if it fails or is invalid."""
        try:
            owned = {**arguments, "state": "packed", "owner": self._login()}
            answer = self._run_module("host_runs", owned)
        except (AnswerError, NotRunError) as error:
            return {"msg": str(error)}
        return {"msg": answer.get("msg")} if answer.get("failed") else answer

    def _fetch_and_unpack(
        self, packed: dict[str, Any], places: Places, most_bytes: int
    ) -> tuple[list[str], list[str]]:
        """Fetch and unpack the archive; return (names of the unpacked files, a text for each missing file).

        `packed` is the module's answer, `most_bytes` the limit for all files together. A larger archive is
        not fetched. Of an incomplete archive, the files that came are unpacked, and the first text says how
        much came.
        """
        if not 0 <= packed["size"] <= most_archive_bytes(most_bytes):
            return [], [f"everything: its archive has {packed['size']} bytes, more than were requested"]
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
        """Write `size` bytes of the host's file `path` to `target`; return "", or in words why fewer came.

        `fetch_file` of Ansible's connections would write whatever a host sends, for as long as it sends.
        """
        connection, (marker, mark) = self._connection, new_marker()
        read = f"{mark}; exec cat {quote(path)}"
        copying = [sys.executable, "-IS", bounded_copy.__file__, str(target), str(size), marker]
        if connection.transport == "local":
            done = subprocess.run([*copying, "sh", "-c", read], capture_output=True, text=True, check=False)
            return done.stdout or (f"exit code {done.returncode}" if done.returncode else "")
        if connection.transport != "ssh":
            return f"ansible_connection is {connection.transport}; expected ssh"
        program = connection.get_option("ssh_executable")
        # Unlike /tmp, this folder permits programs on most machines.
        with tempfile.TemporaryDirectory(dir=constants.DEFAULT_LOCAL_TMP) as directory:
            bounded = Path(directory) / "ssh"
            bounded.write_text(f'#!/bin/sh\nexec {join([*copying, program])} "$@"\n')
            bounded.chmod(0o700)
            connection.set_option("ssh_executable", str(bounded))
            try:
                status, printed, _ = connection.exec_command(join(["/bin/sh", "-c", read]), sudoable=False)
            except AnsibleConnectionFailure:
                return "the connection was lost"
            finally:
                connection.set_option("ssh_executable", program)
        return printed.decode(errors="replace") or (f"exit code {status}" if status else "")
