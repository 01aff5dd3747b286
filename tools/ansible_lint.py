#!/usr/bin/env python3
"""Runs ansible-lint, but makes it check the syntax of imported playbooks only once.

ansible-lint runs each playbook that it is given with --syntax-check, which includes imported ones. It would
then run each imported playbook again, only to learn whether it can be linted, which takes half of its time.

usage: as ansible-lint
"""

import sys
from pathlib import Path

from ansible_compat.runtime import Runtime
from ansiblelint.__main__ import main


def has_playbook(_runtime: Runtime, playbook: str, *, basedir: Path | None = None) -> bool:
    """Return whether an imported playbook exists; its content was checked with the importing one."""
    return ((basedir or Path()) / playbook).exists()


if __name__ == "__main__":
    Runtime.has_playbook = has_playbook  # type: ignore[assignment]
    sys.exit(main(sys.argv))
