"""Where the files of the project are, and its Ansible."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
# The options by which a host of an inventory is this machine, with the Python of the tests.
HERE = ("-c", "local", "-e", f"ansible_python_interpreter={sys.executable}")


def written_play(folder: Path, *tasks: object, **keywords: object) -> Path:
    """Write a playbook with a play of these tasks on all hosts, and return its path."""
    playbook = folder / "playbook.yml"
    play = {"hosts": "all", "gather_facts": False, "tasks": tasks} | keywords
    playbook.write_text(json.dumps([play]))
    return playbook


def played(
    playbook: Path, *options: str | Path, project: str | Path = "", **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run a playbook with the project's configuration, with `settings` in the environment and no colours.

    It is run in a project that has nothing but this: what people keep in the clone, as the runs and the
    inventory of `make demo`, is neither seen nor changed. It is removed, unless it is a `project` given.
    """
    with TemporaryDirectory() as folder:
        project = Path(project or folder)
        shutil.copy(ROOT / "ansible.cfg", project)
        (project / "collections").symlink_to(ROOT / "collections")
        return subprocess.run(
            [Path(sys.executable).parent / "ansible-playbook", playbook, *options],
            cwd=project,
            env=os.environ | {"ANSIBLE_CONFIG": f"{project}/ansible.cfg", "ANSIBLE_NOCOLOR": "1"} | settings,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
