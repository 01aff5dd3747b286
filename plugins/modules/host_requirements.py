"""Say whether one host can become part of the cluster, before anything is changed on it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: host_requirements
short_description: Say whether this host is supported
description:
  - Changes nothing. Fails with everything that is missing at once.
options:
  host:
    description: The host's name, for messages.
    type: str
    required: true
  python_version:
    description: Version of Python that the locked environment is made for, such as C(3.11).
    type: str
    required: true
  machine:
    description: Processor architecture that it is made for.
    type: str
    default: x86_64
  commands:
    description: Programs that must be there.
    type: list
    elements: str
    default: [systemctl, sshd, ssh, ssh-keygen, tail]
author: psfleet
"""

EXAMPLES = r"""
- name: Check that the host is supported
  host_requirements:
    host: node1
    python_version: "3.11"
"""

RETURN = r"""
interpreter:
  description: The Python that the environment is made from.
  returned: success
  type: str
"""

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SUPPORTED = "Debian 12 on x86_64 is supported"


@dataclass(frozen=True)
class Host:
    """What a host is, as far as it decides whether it is supported."""

    system: str
    machine: str
    interpreter: str | None
    pythons: Sequence[str]
    missing_commands: Sequence[str]
    runs_systemd: bool

    def problems(self, python_version: str, machine: str) -> list[str]:
        """Return what keeps the host from being part of a cluster, in words."""
        problems = []
        if self.machine != machine:
            problems.append(f"its processor is {self.machine}; the locked wheels are for {machine}")
        if self.interpreter is None:
            found = ", ".join(self.pythons) or "no Python 3"
            problems.append(f"it has {found}; the locked wheels are for Python {python_version}")
        if not self.runs_systemd:
            problems.append("systemd is not what it was booted with")
        if self.missing_commands:
            problems.append(f"it lacks the programs {', '.join(self.missing_commands)}")
        return problems


def find_interpreter(version: str, path: str = SYSTEM_PATH) -> str | None:
    """Return the system's Python of this version, such as /usr/bin/python3.11, or None."""
    return shutil.which(f"python{version}", path=path)


def found_pythons(path: str = SYSTEM_PATH) -> list[str]:
    """Return the versions of the system's Pythons, such as ["Python 3.9"]."""
    names = {
        candidate.name
        for directory in path.split(":")
        for candidate in Path(directory).glob("python3.[0-9]*")
        if candidate.name.removeprefix("python3.").isdigit()
    }
    return [f"Python {name.removeprefix('python')}" for name in sorted(names)]


def works(interpreter: str, version: str) -> bool:
    """Tell whether an interpreter starts and is of the version that its name says."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([interpreter, "-c", program], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == version


def system_name(release: Path = Path("/etc/os-release")) -> str:
    """Return the distribution's name, such as "Debian GNU/Linux 12 (bookworm)"."""
    try:
        lines = release.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.system()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return values.get("PRETTY_NAME", platform.system()).strip('"')


def inspect_host(python_version: str, commands: Sequence[str]) -> Host:
    """Look at this host."""
    interpreter = find_interpreter(python_version)
    if interpreter is not None and not works(interpreter, python_version):
        interpreter = None
    return Host(
        system=system_name(),
        machine=os.uname().machine,
        interpreter=interpreter,
        pythons=found_pythons(),
        missing_commands=[name for name in commands if shutil.which(name, path=SYSTEM_PATH) is None],
        runs_systemd=Path("/run/systemd/system").is_dir(),
    )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "python_version": {"type": "str", "required": True},
            "machine": {"type": "str", "default": "x86_64"},
            "commands": {
                "type": "list",
                "elements": "str",
                "default": ["systemctl", "sshd", "ssh", "ssh-keygen", "tail"],
            },
        },
        supports_check_mode=True,
    )
    host = inspect_host(module.params["python_version"], module.params["commands"])
    problems = host.problems(module.params["python_version"], module.params["machine"])
    if problems:
        module.fail_json(
            msg=f"{module.params['host']} runs {host.system} and cannot be part of the cluster: "
            f"{'; '.join(problems)}. {SUPPORTED}. Nothing was changed there. "
            "Mend the host or take it out of the inventory."
        )
    module.exit_json(changed=False, interpreter=host.interpreter)


if __name__ == "__main__":
    main()
