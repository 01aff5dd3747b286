"""Watch a run from its lead's host until it is over, and show how it goes.

The lead's `progress.json` tells of the whole cluster, so one connection is enough for any number of hosts. It
only reads: any number of people may watch the same run.
"""

import time
from typing import Any

from ansible.utils.display import Display

from psfleet.watch.lead_host import LOST_SECONDS
from psfleet.watch.lead_reading import (
    Reading,
    age_command,
    age_of,
    places,
    read_command,
    without_stale_progress,
)
from psfleet.watch.notices import Notice
from psfleet.watch.screen import Screen
from psfleet.watch.unit_states import unit_commands
from psfleet.watch.watched_run import WatchedRun
from trainer.contract.progress import Progress

from ..plugin_utils.actions import HostAction
from ..plugin_utils.asked_hosts import AskedHosts

display = Display()

LINGER_SECONDS = 15  # between the lead's last word and the end of its process
ASK_SECONDS = 10  # between two looks at the tasks of each host
RAW_VERBOSITY = 2


class ActionModule(HostAction):
    """Arguments: `run` (of decide_run), `paths` (`cluster_paths`), `user` (the tasks'), and what to wait.

    That is `poll_seconds` between looks and `plain_seconds` between lines where there is no terminal. With
    `end_on_failure` the run of a program has failed once systemd gives up a task of it; with
    `deadline_minutes` (0 for none) a run that has taken longer is stopped.
    Returns `phase` (`lost` where the lead's host is silent, and no client goes on elsewhere), `reason`,
    `global_step` and `restarts`; fails only where no host answers.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._task.check_mode:
            return {"phase": "not started", "reason": "check mode", "restarts": 0}
        run, paths, user = arguments["run"], arguments["paths"], arguments["user"]
        self._lead = str(run["lead"]["name"])
        self._view = WatchedRun(run)
        self._age_command = age_command(run, paths, user)
        self._problem, self._restarts, lead_host = "", 0, str(run["lead"]["host"])
        # A host that has left the inventory since is one that does not answer.
        commands = unit_commands(run, paths, user).items()
        known = {host: command for host, command in commands if host in self.variables["hostvars"]}
        self._asked = AskedHosts(self, known, ASK_SECONDS)
        reading = {lead_host: read_command(run, paths, user)}
        self._lead_asked = AskedHosts(self, reading, float(arguments["poll_seconds"]))
        self._ends_on_failure = bool(arguments["end_on_failure"] and run["settings"]["program"])
        self._deadline_minutes = float(arguments["deadline_minutes"])
        again = f"ansible-playbook train.yml -e run_id={run['id']}"
        # A line for each command: a terminal that is narrow leaves it in one piece to copy.
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
            for place in places(run, paths) if display.verbosity else ():
                screen.say(place)
            return self._watch(screen, float(arguments["poll_seconds"]))

    def _watch(self, screen: Screen, poll_seconds: float) -> dict[str, Any]:
        over_since = 0.0
        stale: Progress | None = None
        while screen.watched:
            reading = self._read(screen, poll_seconds)
            self._hear(screen)
            if reading is None:
                if end := self._unread(screen):
                    return end
                continue
            # A run that goes on begins with the last word of its earlier part.
            stale = stale or (reading.progress if reading.progress.over else Progress("none"))
            reading = without_stale_progress(reading, stale)
            for note in self._view.add_reading(reading, time.monotonic()):
                self._note(screen, note)
            screen.show(self._view.now)
            if phase := self._cut_short(screen, reading.progress):
                return {**self._outcome(reading.progress), "phase": phase}
            over_since = (over_since or time.monotonic()) if reading.progress.over else 0.0
            if not reading.alive or (over_since and time.monotonic() - over_since > LINGER_SECONDS):
                return self._outcome(reading.progress)
        return self._failure("the playbook that watched is gone; the run goes on")

    def _unread(self, screen: Screen) -> dict[str, Any]:
        """Tell of a lead's host that is silent; return the answer where nothing more comes of waiting."""
        for note in self._view.add_silence(time.monotonic(), self._problem):
            self._note(screen, note)
        fate, progress = self._view.fate(time.monotonic(), self._asked.seconds), self._view.now.progress
        if fate == "unwatched":
            return self._failure(
                f"no host answers, that of {self._lead} for {LOST_SECONDS:.0f} s: {self._problem}\n"
                "The run goes on unwatched: watch it again with its run_id, or end it with stop.yml"
            )
        if fate == "over":
            return {
                **self._outcome(progress),
                "phase": "lost",
                "reason": f"the host of {self._lead} is silent",
            }
        phase = self._cut_short(screen, progress)
        return {**self._outcome(progress), "phase": phase} if phase else {}

    def _cut_short(self, screen: Screen, progress: Progress) -> str:
        """Return the phase of a run that is ended from here, empty for one that goes on."""
        if progress.phase == "training" and self._ends_on_failure and self._view.units.given_up:
            return "failed"
        if 0 < 60 * self._deadline_minutes <= self._view.elapsed(time.monotonic()):
            why = f"training_run_deadline_minutes is {self._deadline_minutes:g}: the run is stopped"
            self._note(screen, Notice(why))
            return "stopped"
        return ""

    def _read(self, screen: Screen, wait: float) -> Reading | None:
        """Return the lead's progress and its unit's state as they were told last, None where none came."""
        reading = None
        for answer in self._lead_asked.heard(2 * wait):
            if display.verbosity == RAW_VERBOSITY:
                screen.say(" ".join(answer.printed.split()))
            try:
                reading, self._problem = Reading.of(answer.printed), ""
            except ValueError as error:
                self._problem = f"{error}: {answer.problem}".removesuffix(": ")
        if reading and reading.restarts and self._view.began is None:
            age = age_of(self._low_level_execute_command(self._age_command, sudoable=True)["stdout"], reading)
            self._view.began = time.monotonic() - age
        if reading:
            self._restarts = reading.restarts
        return reading

    def _hear(self, screen: Screen) -> None:
        """Note what systemd says of the tasks: one that it has given up tells nobody of it."""
        for host, printed, _ in self._asked.heard():
            for note in self._view.add_units(host, printed, time.monotonic()):
                self._note(screen, note)

    def _note(self, screen: Screen, note: Notice) -> None:
        screen.note(note, self._view.elapsed(time.monotonic()))

    def _outcome(self, progress: Progress) -> dict[str, Any]:
        return {
            "phase": progress.phase,
            "reason": progress.reason,
            "global_step": progress.global_step,
            "restarts": self._restarts,
        }
