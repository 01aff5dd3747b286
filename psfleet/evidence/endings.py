"""How each task of a run ended according to systemd, and what it exchanged, from tasks.json."""

from collections.abc import Mapping
from dataclasses import dataclass

from psfleet.evidence.untrusted_files import MOST_COUNTED
from trainer.contract.exit_codes import FINISHED, STOPPED
from trainer.host.error_lines import in_short

# The values of `ended_by`.
HOST, ITSELF, PLAYBOOK = "host", "itself", "psfleet"
ENDED_BY_PLAYBOOK = "was ended by a playbook"


@dataclass(frozen=True)
class Ending:
    """How one task ended.

    `alive` is True if the task still ran when the run was collected, `failed` if systemd calls its unit
    failed. `exit_code` is None if systemd no longer knew it and the task recorded none. `restarts` counts how
    often systemd started it again, and `reason` is the error, "" for none. The bytes are those that systemd
    counted for the task's unit, None if it did not count them. `refused` is the number of connections to the
    task's port that the host's fence refused, None if the fence did not count them. `ended_by` is "psfleet"
    if a playbook ended the task, "host" if its host went down, "itself" otherwise, and "" in files without
    this field.
    """

    alive: bool
    failed: bool
    exit_code: int | None
    restarts: int = 0
    reason: str = ""
    bytes_received: int | None = None
    bytes_sent: int | None = None
    ended_by: str = ""
    refused: int | None = None

    @property
    def well(self) -> bool:
        """Whether the task ended without a failure: by itself, or because something stopped it."""
        return not self.alive and not self.failed

    @property
    def by_itself(self) -> bool:
        """Whether it ended successfully without being stopped."""
        return self.well and self.exit_code == FINISHED and self.ended_by != PLAYBOOK

    @property
    def in_words(self) -> str:
        """How the task ended, in words that follow its name, such as "failed with exit code 1"."""
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
        """The bytes received and sent; None if they were not counted."""
        if self.bytes_received is None or self.bytes_sent is None:
            return None
        return self.bytes_received, self.bytes_sent

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> "Ending":
        """Return the ending in an entry of tasks.json. Raises ValueError if the entry is incomplete."""
        alive, failed = values.get("alive"), values.get("failed")
        exit_code = _count(values.get("exit_code"))
        unknown = "exit_code" in values and values["exit_code"] is None
        if not (isinstance(alive, bool) and isinstance(failed, bool) and (unknown or exit_code is not None)):
            raise ValueError("it lacks alive, failed or exit_code")
        restarts, reason = _count(values.get("restarts")) or 0, in_short(str(values.get("reason") or ""))
        exchanged = _count(values.get("bytes_received")), _count(values.get("bytes_sent"))
        ended_by, refused = str(values.get("ended_by") or ""), _count(values.get("refused"))
        return cls(alive, failed, exit_code, restarts, reason, *exchanged, ended_by, refused)


def read_endings(content: object) -> tuple[dict[str, Ending], list[str]]:
    """Return ({task: its ending}, problems) from the content of tasks.json.

    An invalid entry is left out and adds a problem, which is a sentence.
    """
    if not isinstance(content, list):
        return {}, ["tasks.json: not a JSON list"]
    endings, problems = {}, []
    for number, entry in enumerate(content):
        try:
            if not isinstance(entry, Mapping):
                raise ValueError("it is not an object")
            endings[str(entry.get("name"))] = Ending.from_mapping(entry)
        except ValueError as error:  # noqa: PERF203 - other entries still count
            problems.append(f"tasks.json, entry {number}: {error}")
    return endings, problems


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_COUNTED else None
