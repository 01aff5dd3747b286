"""The copies of the chief's checkpoints that a task keeps on its own host, and when a new copy counts."""

import re
import time
from threading import Thread

from trainer.coordination.running_task import RunningTask
from trainer.host.error_lines import error_in_short
from trainer.model.checkpoints import COPIES, CheckpointFolder, DamagedError
from trainer.process.console import say
from trainer.task.checkpoint_copies import SENT_SUFFIX

_SECONDS_BETWEEN_LOOKS = 0.5
_SENT = re.compile(rf"model\.ckpt-([0-9]{{1,18}}){re.escape(SENT_SUFFIX)}")
_FINGERPRINT = re.compile(r"[0-9a-f]{16}")


def keep_copies(task: RunningTask) -> None:
    """If this task keeps copies of the chief's checkpoints, start the thread that checks what arrives.

    Do nothing if the task is no keeper or has no run directory. If the folder cannot be used, print a line.
    """
    run_directory = task.options.run_directory
    if run_directory is None or task.cluster.task not in task.cluster.keepers(
        task.settings.checkpoint_copies
    ):
        return
    try:
        folder = CheckpointFolder(run_directory.absolute() / COPIES, task.settings.checkpoints_to_keep)
    except OSError as error:  # the chief records that its copies fail
        say(f"no copies of checkpoints are kept: {error}")
        return
    Thread(target=_keep, args=(folder,), daemon=True).start()


def accept_copies(folder: CheckpointFolder) -> None:
    """Check each copy in `folder` that has arrived completely: one that reads back as it was sent counts.

    Any other such copy is removed, with a printed line. A copy that is still being sent is left alone, unless
    another copy was checked: then all unfinished files are removed.
    """
    for file in folder.directory.glob(f"*{SENT_SUFFIX}"):
        match, fingerprint = _SENT.fullmatch(file.name), file.read_text(encoding="utf-8", errors="replace")
        if match is None or not _FINGERPRINT.fullmatch(fingerprint):
            continue  # the file is still being written
        try:
            folder.accept(int(match[1]), fingerprint)
        except (DamagedError, OSError) as error:
            say(f"the copy of the checkpoint at global step {match[1]} is refused: {error}")
        folder.remove_unfinished()


def _keep(folder: CheckpointFolder) -> None:
    while True:
        try:
            accept_copies(folder)
        except Exception as error:
            say(f"copies of checkpoints: {error_in_short(error)}")
        time.sleep(_SECONDS_BETWEEN_LOOKS)
