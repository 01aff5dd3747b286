"""Draws a run on the terminal of this process's parent, as the action of train.yml does.

Arguments: what to do, one after the other: `view=STEP`, `note=TEXT`, `other=TEXT` (which somebody else
writes), `wait`, which is over when a line comes in.
"""

import contextlib
import os
import select
import signal
import sys
from pathlib import Path

from ansible import constants

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from psfleet.watch.notices import Notice
from psfleet.watch.screen import Screen
from tests.psfleet.watch.played_runs import PlayedRun, decided_run


def main() -> None:
    """Do what the arguments say, in a child whose parent has the terminal."""
    if os.fork():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.wait()
        return
    # Whoever starts the tests in the background lets them ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parting = ("Run night goes on. Watch it again:", "  ansible-playbook train.yml")
    run = PlayedRun(decided_run(2, ps=1), last_step=1000)
    with (
        contextlib.suppress(KeyboardInterrupt),
        Screen(0.0, parting, constants.DEFAULT_HOST_LIST) as screen,
    ):
        for argument in sys.argv[1:]:
            what, _, text = argument.partition("=")
            if what == "view":
                run.goes_on(1, [1, 1], global_step=int(text), loss=0.25)
                screen.show(run.view.now)
            elif what == "note":
                screen.note(Notice(text), 65.0)
            elif what == "other":
                os.write(1, f"{text}\n".encode())
            elif what == "wait":
                os.write(1, b"\x1b[0m")
                # A signal that comes just before a call would wait for its end.
                while not select.select([sys.stdin], [], [], 0.1)[0]:
                    pass
                sys.stdin.readline()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
