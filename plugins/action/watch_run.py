"""Watch a run from its lead's host until it is over, and show how it goes.

The lead's `progress.json` tells of the whole cluster, so one connection is enough for any number of hosts. It
only reads: any number of people may watch the same run.
"""

import time
from typing import Any

from ansible.errors import AnsibleError
from ansible.utils.display import Display

from psfleet.watch.lead_reading import (
    Reading,
    age_command,
    age_of,
    places,
    read_command,
    without_stale_word,
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
LOST_SECONDS = 60  # without an answer from the lead's host
ASK_SECONDS = 10  # between two looks at the tasks of each host
RAW_VERBOSITY = 2


class ActionModule(HostAction):
    """Arguments: `run` (of decide_run), `paths` (`cluster_paths`), `user` (the tasks'), and what to wait.

    That is `poll_seconds` between looks and `plain_seconds` between lines where there is no terminal. With
    `end_on_failure` the run of a program has failed once systemd gives up a task of it; with
    `deadline_minutes` (0 for none) a run that has taken longer is stopped.
    Returns `phase`, `reason`, `global_step` and `restarts`; fails only where the host is lost.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._task.check_mode:
            return {"phase": "not started", "reason": "check mode", "restarts": 0}
        run, paths, user = arguments["run"], arguments["paths"], arguments["user"]
        self._lead = str(run["lead"]["name"])
        self._view = WatchedRun(run)
        self._command, self._age_command = read_command(run, paths, user), age_command(run, paths, user)
        # A host that has left the inventory since is one that does not answer.
        commands = unit_commands(run, paths, user).items()
        known = {host: command for host, command in commands if host in self.variables["hostvars"]}
        self._asked = AskedHosts(self, known, ASK_SECONDS)
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
        over_since, answered, silent = 0.0, time.monotonic(), False
        stale: Progress | None = None
        while screen.watched:
            try:
                reading = self._read(screen)
            except AnsibleError as error:
                if time.monotonic() - answered > LOST_SECONDS:
                    return self._failure(
                        f"no answer from the host of {self._lead} for {LOST_SECONDS} s ({error}). The run "
                        "goes on unwatched: watch it again with its run_id, or end it with stop.yml"
                    )
                if not silent:
                    self._note(screen, Notice(f"the host of {self._lead} does not answer: {error}"))
                silent = True
                time.sleep(poll_seconds)
                continue
            if silent:
                self._note(screen, Notice(f"the host of {self._lead} answers again", good=True))
            answered, silent = time.monotonic(), False
            # A run that goes on begins with the last word of its earlier part.
            stale = stale or (reading.progress if reading.progress.over else Progress("none"))
            reading = without_stale_word(reading, stale)
            for note in self._view.look(reading, time.monotonic()):
                self._note(screen, note)
            screen.show(self._view.now)
            self._hear(screen)
            if phase := self._cut_short(screen, reading):
                return {**_outcome(reading), "phase": phase}
            over_since = (over_since or time.monotonic()) if reading.progress.over else 0.0
            if not reading.alive or (over_since and time.monotonic() - over_since > LINGER_SECONDS):
                return _outcome(reading)
            time.sleep(poll_seconds)
        return self._failure("the playbook that watched is gone; the run goes on")

    def _cut_short(self, screen: Screen, reading: Reading) -> str:
        """Return the phase of a run that is ended from here, empty for one that goes on."""
        if reading.progress.phase == "training" and self._ends_on_failure and self._view.units.given_up:
            return "failed"
        if 0 < 60 * self._deadline_minutes <= self._view.elapsed(time.monotonic()):
            why = f"training_run_deadline_minutes is {self._deadline_minutes:g}: the run is stopped"
            self._note(screen, Notice(why))
            return "stopped"
        return ""

    def _read(self, screen: Screen) -> Reading:
        """Return the lead's progress and its unit's state, in one command. Raises AnsibleError."""
        answer = self._low_level_execute_command(self._command, sudoable=True)
        if display.verbosity == RAW_VERBOSITY:
            screen.say(" ".join(answer["stdout"].split()))
        try:
            reading = Reading.of(answer["stdout"])
        except ValueError as error:
            raise AnsibleError(f"{error}: {answer['stderr'].strip()}") from error
        if reading.restarts and self._view.began is None:
            age = age_of(self._low_level_execute_command(self._age_command, sudoable=True)["stdout"], reading)
            self._view.began = time.monotonic() - age
        return reading

    def _hear(self, screen: Screen) -> None:
        """Note what systemd says of the tasks: one that it has given up tells nobody of it."""
        for host, answer in self._asked.heard():
            for note in self._view.asked(host, answer, time.monotonic()):
                self._note(screen, note)

    def _note(self, screen: Screen, note: Notice) -> None:
        screen.note(note, self._view.elapsed(time.monotonic()))


def _outcome(reading: Reading) -> dict[str, Any]:
    return {
        "phase": reading.progress.phase,
        "reason": reading.progress.reason,
        "global_step": reading.progress.global_step,
        "restarts": reading.restarts,
    }
