#!/usr/bin/env python3
"""ansible-lint, which plays with --syntax-check what it is told to lint, with all that this imports, once.

It would then play each imported playbook by itself, only to learn whether it can be linted: half of its time.

usage: as ansible-lint
"""

import sys
from pathlib import Path

from ansible_compat.runtime import Runtime
from ansiblelint.__main__ import main


def has_playbook(_runtime: Runtime, playbook: str, *, basedir: Path | None = None) -> bool:
    """Whether an imported playbook is there; what it holds was played with the one that imports it."""
    return ((basedir or Path()) / playbook).exists()


if __name__ == "__main__":
    Runtime.has_playbook = has_playbook  # type: ignore[assignment]
    sys.exit(main(sys.argv))
