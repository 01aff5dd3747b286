"""Where the files of the project are, and its Ansible."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def played(playbook: Path, *options: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook with the project's configuration, with `settings` in the environment and no colours."""
    return subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", playbook, *options],
        cwd=ROOT,
        env=os.environ | {"ANSIBLE_CONFIG": f"{ROOT}/ansible.cfg", "ANSIBLE_NOCOLOR": "1"} | settings,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
