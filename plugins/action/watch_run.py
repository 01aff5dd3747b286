"""Watches a run from its lead's host until the run is over, and shows its progress.

The lead's `progress.json` describes the whole cluster, so one connection suffices for any number of hosts.
Any number of people may watch the same run, because watching only reads, with one exception: if a program's
lead has ended and waits only for tasks that never end by themselves, the watcher stops these tasks.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ansible.errors import AnsibleError

from psfleet.carry.deadlines import TooLateError, within
from psfleet.watch.lead_reading import (
    Reading,
    age_command,
    age_of,
    log_places,
    read_command,
    without_stale_progress,
)
from psfleet.watch.notices import Notice
from psfleet.watch.screen import Screen
from psfleet.watch.serving_tasks import stop_serving_command
from psfleet.watch.terminal import escaping_display
from psfleet.watch.unit_states import POLLS_UNTIL_SILENT, SILENT_SECONDS, unit_commands
from psfleet.watch.watched_run import WatchedRun
from trainer.contract.progress import Progress

from ..plugin_utils.actions import HostAction
from ..plugin_utils.asked_hosts import ANSWER_SECONDS
from ..plugin_utils.polled_hosts import PATIENCE, PolledHosts

display = escaping_display()

LINGER_SECONDS = 15  # between the lead's final progress and the end of its process
UNITS_POLL_SECONDS = 5  # between two polls of each host's units
RAW_VERBOSITY = 2


class ActionModule(HostAction):
    """Returns how the run ended, with the fields in RETURN of the module `watch_run`.

    While the lead's host is silent, this waits for it; the action fails only if no host has answered for
    long.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._task.check_mode:
            return {"phase": "not started", "reason": "check mode", "restarts": 0}
        run, paths, user = arguments["run"], arguments["paths"], arguments["user"]
        self._lead = str(run["lead"]["name"])
        self._view = WatchedRun(run)
        self._age_command = age_command(run, paths, user)
        self._problem, self._restarts, lead_host = "", 0, str(run["lead"]["host"])
        self._restarts_of_stopped: dict[str, int] = {}
        # A host that is no longer in the inventory counts as a host that does not answer.
        commands = unit_commands(run, paths, user).items()
        known = {host: command for host, command in commands if host in self.variables["hostvars"]}
        self._unit_polls = PolledHosts(self, known, UNITS_POLL_SECONDS)
        silent_seconds = max(SILENT_SECONDS, POLLS_UNTIL_SILENT * self._unit_polls.seconds)
        self._view.units.silent_seconds = silent_seconds
        reading = {lead_host: read_command(run, paths, user)}
        self._lead_polls = PolledHosts(self, reading, float(arguments["poll_seconds"]))
        self._ends_on_failure = bool(arguments["end_on_failure"] and run["settings"]["program"])
        self._deadline_minutes = float(arguments["deadline_minutes"])
        again = f"ansible-playbook train.yml -e run_id={run['id']}"
        # Each command has a line of its own, which even a narrow terminal leaves in one piece to copy.
        parting = (
            f"Run {run['id']} goes on. Watch it again, or end it:",
            f"  {again}",
            "  ansible-playbook stop.yml",
        )
        inventory = self.variables["ansible_inventory_sources"]
        with Screen(float(arguments["plain_seconds"]), parting, inventory) as screen:
            screen.say(f"Run {run['id']}: Ctrl-C ends the watching, not the run.")
            if not screen.on_terminal:
                screen.say(f"Watch it again: {again}")
            for place in log_places(run, paths) if display.verbosity else ():
                screen.say(place)
            return self._watch(screen, float(arguments["poll_seconds"]))

    def _watch(self, screen: Screen, poll_seconds: float) -> dict[str, Any]:
        over_since = 0.0
        stale: Progress | None = None
        while screen.watched:
            reading = self._read(screen, poll_seconds)
            self._read_units(screen)
            if reading is None:
                if end := self._answer_for_silent_lead(screen):
                    return end
                screen.show(self._view.now)
                continue
            # A resumed run at first still shows the final progress of its earlier part.
            stale = stale or (reading.progress if reading.progress.is_over else Progress("none"))
            reading = without_stale_progress(reading, stale)
            for note in self._view.add_reading(reading, time.monotonic()):
                self._note(screen, note)
            screen.show(self._view.now)
            if phase := self._phase_to_end_with(screen, reading.progress):
                return {**self._outcome(reading.progress), "phase": phase}
            over_since = (over_since or time.monotonic()) if reading.progress.is_over else 0.0
            if not reading.alive or (over_since and time.monotonic() - over_since > LINGER_SECONDS):
                return self._outcome(reading.progress)
        return self._failure("the playbook that watched is gone; the run goes on")

    def _answer_for_silent_lead(self, screen: Screen) -> dict[str, Any]:
        """Show that the lead's host is silent; return {} to keep waiting, else the action's answer."""
        for note in self._view.add_silence(time.monotonic(), self._problem):
            self._note(screen, note)
        fate, progress = self._view.fate(time.monotonic(), self._unit_polls.seconds), self._view.now.progress
        if fate == "unwatched":
            return self._failure(
                f"no host answers, that of {self._lead} for {self._view.patience_seconds:.0f} s: "
                f"{self._problem}\n"
                "The run goes on unwatched: watch it again with its run_id, or end it with stop.yml"
            )
        if fate == "over":
            return {
                **self._outcome(progress),
                "phase": "lost",
                "reason": f"the host of {self._lead} is silent",
            }
        phase = self._phase_to_end_with(screen, progress)
        return {**self._outcome(progress), "phase": phase} if phase else {}

    def _phase_to_end_with(self, screen: Screen, progress: Progress) -> str:
        """Return the phase with which the watcher ends the run, "failed" or "stopped"; "" if the run goes on.

        It ends the run on a program's failed task with `end_on_failure`, on lost parameters, and at the
        deadline.
        """
        if progress.phase == "training" and self._ends_on_failure and self._view.units.first_failure:
            return "failed"
        if progress.phase in {"training", "waiting"} and self._view.parameters_lost:
            return "failed"
        if 0 < 60 * self._deadline_minutes <= self._view.elapsed(time.monotonic()):
            why = f"training_run_deadline_minutes is {self._deadline_minutes:g}: the run is stopped"
            self._note(screen, Notice(why))
            return "stopped"
        return ""

    def _read(self, screen: Screen, wait: float) -> Reading | None:
        """Return the lead's newest progress and the state of its unit.

        Wait up to 2 * `wait` seconds for an answer of the lead's host; return None if no valid one came.
        """
        reading = None
        for answer in self._lead_polls.answers(2 * wait):
            if display.verbosity == RAW_VERBOSITY:
                screen.say(" ".join(answer.printed.split()))
            try:
                reading, self._problem = Reading.of(answer.printed), ""
            except ValueError as error:
                self._problem = f"{error}: {answer.problem}".removesuffix(": ")
        if reading and reading.restarts and self._view.began is None:
            # The host may go away right now; ask again after its next answer.
            with suppress(AnsibleError, TooLateError), within(ANSWER_SECONDS):
                printed, _ = self.run_command(self._age_command)
                self._view.began = time.monotonic() - age_of(printed, reading)
        if reading:
            self._restarts = reading.restarts
        return reading

    def _read_units(self, screen: Screen) -> None:
        """Show what systemd says about the tasks of all hosts, because a failed task cannot report itself.

        Also stop the tasks that only serve a program whose lead has ended.
        """
        for host, printed, _ in self._unit_polls.answers():
            for note in self._view.add_units(host, printed, time.monotonic()):
                self._note(screen, note)
            for task in self._view.waits_in_vain_for:
                if task["host"] == host in self.variables["ansible_play_hosts_all"]:
                    self._stop_serving(screen, task)

    def _stop_serving(self, screen: Screen, task: Mapping[str, Any]) -> None:
        """Stop a task that only serves, and show once that it is ended.

        If its host does not answer, nothing happens; `_read_units` tries again after the host's next answer.
        """
        name, host = str(task["name"]), str(task["host"])
        with suppress(AnsibleError, TooLateError), within(ANSWER_SECONDS):
            there = self.on(host, PATIENCE)
            ended, _ = there.run_command(f"{stop_serving_command(task)} && echo ended")
            if ended and name not in self._restarts_of_stopped:
                self._restarts_of_stopped[name] = self._view.restarts_of(name)
                why = "its program waits in server.join(), and does nothing else"
                self._note(screen, Notice(f"{name} on {host} is ended: {why}", good=True))

    def _note(self, screen: Screen, note: Notice) -> None:
        screen.note(note, self._view.elapsed(time.monotonic()))

    def _outcome(self, progress: Progress) -> dict[str, Any]:
        return {
            "phase": progress.phase,
            "reason": progress.reason,
            "global_step": progress.global_step,
            "restarts": self._restarts,
            "silent_hosts": self._view.units.silent_hosts,
            "stopped": self._restarts_of_stopped,
            "beyond_limit": [
                f"{task} on {host}"
                for task, host in self._view.units.hosts.items()
                if host not in self.variables["ansible_play_hosts_all"] and task not in self._view.units.empty
            ],
        }
