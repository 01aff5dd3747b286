#!/usr/bin/env python3
"""Runs ansible-lint, but makes it check the syntax of all playbooks in one process, and each only once.

ansible-lint starts `ansible-playbook --syntax-check` for each playbook that it is given, imported playbooks
included, and again for each imported playbook, only to learn whether the playbook can be linted. Two thirds
of the time go into these starts. If the one process finds an error, ansible-lint starts them all, to name it.

usage: as ansible-lint
"""

import subprocess
import sys
from pathlib import Path

from ansible_compat.runtime import Runtime
from ansiblelint.__main__ import main
from ansiblelint.errors import MatchError
from ansiblelint.file_utils import Lintable
from ansiblelint.runner import Runner

check_one_by_one = Runner._run_syntax_check_phase


def has_playbook(_runtime: Runtime, playbook: str, *, basedir: Path | None = None) -> bool:
    """Return whether the file of an imported playbook exists.

    It is relative to `basedir`, by default the current folder. Its content is not looked at: it was checked
    with the importing playbook.
    """
    return ((basedir or Path()) / playbook).exists()


def check_syntax(runner: Runner, matches: list[MatchError]) -> list[Lintable]:
    """Check the syntax of the runner's playbooks; return the files that were checked.

    If there is an error, or a file of another kind to check, ansible-lint checks one by one, and adds an
    entry to `matches` for each error.
    """
    files = [file for file in runner.lintables if file.kind == "playbook" and not file.stop_processing]
    others = [file for file in runner.lintables if file.kind in {"role", "pattern"}]
    if others or not have_good_syntax(files):
        return check_one_by_one(runner, matches)
    return files


def have_good_syntax(playbooks: list[Lintable]) -> bool:
    """Return whether ansible-playbook finds no error in these playbooks, nor in what they import.

    Return False if `playbooks` is empty.
    """
    command = ["ansible-playbook", "--syntax-check", *(str(playbook.path) for playbook in playbooks)]
    return bool(playbooks) and subprocess.run(command, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    Runtime.has_playbook = has_playbook  # type: ignore[assignment]
    Runner._run_syntax_check_phase = check_syntax  # type: ignore[assignment, method-assign]
    sys.exit(main(sys.argv))
