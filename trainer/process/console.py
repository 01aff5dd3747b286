"""What a task says to people: whole lines on standard output, which systemd appends to `worker0.out`."""

import sys


def say(text: str) -> None:
    """Print one line at once; a reader that went away or a full disk does not stop the training."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError:
        return
