"""How each task of a run ended according to systemd, and what it exchanged, from tasks.json."""

from dataclasses import MISSING, dataclass

from trainer.contract.exit_codes import FINISHED, STOPPED
from trainer.contract.json_objects import JsonObject
from trainer.contract.json_values import COUNT, SWITCH, TEXT, nullable
from trainer.contract.rules import Rule, setting, to_text
from trainer.host.error_lines import in_short

# The values of `ended_by`.
HOST, ITSELF, PLAYBOOK = "host", "itself", "psfleet"
ENDED_BY_PLAYBOOK = "was ended by a playbook"


@dataclass(frozen=True)
class Ending(JsonObject):
    """How one task ended.

    `alive` is True if the task still ran when the run was collected, `failed` if systemd calls its unit
    failed. `exit_code` is None if systemd no longer knew it and the task recorded none. `restarts` counts how
    often systemd started it again, and `reason` is the error, "" for none. The bytes are those that systemd
    counted for the task's unit, None if it did not count them. `refused` is the number of connections to the
    task's port that the host's fence refused, None if the fence did not count them. `ended_by` is "psfleet"
    if a playbook ended the task, "host" if its host went down, "itself" otherwise, and "" in files without
    this field.
    """

    alive: bool = setting(MISSING, SWITCH)
    failed: bool = setting(MISSING, SWITCH)
    exit_code: int | None = setting(MISSING, nullable(COUNT))
    restarts: int = setting(0, COUNT)
    reason: str = setting("", Rule("a text", lambda value: in_short(to_text(value))))
    bytes_received: int | None = setting(None, nullable(COUNT))
    bytes_sent: int | None = setting(None, nullable(COUNT))
    ended_by: str = setting("", TEXT)
    refused: int | None = setting(None, nullable(COUNT))

    @property
    def well(self) -> bool:
        """Whether the task neither still ran nor failed: it ended by itself, or something stopped it."""
        return not self.alive and not self.failed

    @property
    def by_itself(self) -> bool:
        """Whether it ended with exit code 0, and no playbook ended it."""
        return self.well and self.exit_code == FINISHED and self.ended_by != PLAYBOOK

    @property
    def in_words(self) -> str:
        """How the task ended, in words that follow its name.

        They are "was still running", "ended by itself", "was lost" (its host went down), "failed with exit
        code 1", "was ended by SIGTERM, which no playbook sent" or "was ended by a playbook"; the first that
        fits counts.
        """
        if self.alive:
            return "was still running"
        if self.by_itself:
            return "ended by itself"
        if self.ended_by == HOST:
            return "was lost"
        if self.failed:
            return f"failed with exit code {self.exit_code}"
        if self.ended_by == ITSELF and self.exit_code == STOPPED:
            return "was ended by SIGTERM, which no playbook sent"
        return ENDED_BY_PLAYBOOK

    @property
    def exchanged(self) -> tuple[int, int] | None:
        """(bytes received, bytes sent); None if one of them was not counted."""
        if self.bytes_received is None or self.bytes_sent is None:
            return None
        return self.bytes_received, self.bytes_sent


def read_endings(content: object) -> tuple[dict[str, Ending], list[str]]:
    """Return ({task: how it ended}, problems) from the parsed content of tasks.json.

    An invalid entry is left out and adds a problem, which is a sentence. If two entries have one name, the
    last counts. If the content is no list, return ({}, [a problem]).
    """
    if not isinstance(content, list):
        return {}, ["tasks.json: not a JSON list"]
    endings, problems = {}, []
    for number, entry in enumerate(content):
        try:
            ending = Ending.from_json(entry)
            endings[str(entry.get("name"))] = ending
        except ValueError as error:  # noqa: PERF203 - other entries still count
            problems.append(f"tasks.json, entry {number}: {error}")
    return endings, problems
