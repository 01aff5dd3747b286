"""Modules of psfleet run by Python alone on a host: several in one stream there, their answers in one back.

Ansible's way sends its own library with each call, which the host compiles anew. The arguments are looked
at here, by the modules' documentation. Where a connection gives a command nothing to read, it is Ansible's.
"""

import io
import json
import shlex
import zipfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.json import Direction, get_module_encoder
from ansible.plugins.action import ActionBase
from ansible.vars.clean import remove_internal_keys

from psfleet.run.host_answers import UnusableError

from ..module_utils.bare_module import is_last
from ..module_utils.documented import argument_spec

OURS = "psfleet.cluster."
PLUGINS = Path(__file__).resolve().parents[1]
# Both sides speak plain JSON, without Ansible's tags.
PROFILE = "legacy"
# What comes in is an archive that Python can run; nobody else on the host can open the file.
BOOT = (
    "import runpy, sys, tempfile\n"
    "with tempfile.NamedTemporaryFile() as file:\n"
    "    file.write(sys.stdin.buffer.read())\n"
    "    file.flush()\n"
    "    runpy.run_path(file.name, run_name='__main__')"
)
MAIN = "from plugins.module_utils.bare_module import main; main()"

# The name of a module, and its arguments.
Call = tuple[str, Mapping[str, Any]]
Answers = list[dict[str, Any]]


def _packed() -> bytes:
    """Return an archive with all modules and what they share."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", MAIN)
        for folder in ("", "modules/", "module_utils/"):
            archive.writestr(f"plugins/{folder}__init__.py", "")
        for pattern in ("modules/*.py", "module_utils/*.py", "module_utils/host/*.py"):
            for path in sorted(PLUGINS.glob(pattern)):
                archive.writestr(f"plugins/{path.relative_to(PLUGINS)}", path.read_bytes())
    return content.getvalue()


# Packed before Ansible forks for its hosts.
_PROGRAM = _packed()


def run_on_host(action: ActionBase, calls: Sequence[Call], variables: Mapping[str, Any]) -> Answers:
    """Return what modules answer on the host of an action; the last may have failed, or need an archive.

    Raises UnusableError for answers that are none.
    """
    ours = all(module.startswith(OURS) for module, _ in calls)
    if ours and action._is_pipelining_enabled("new"):
        return _run_alone(action, calls, variables)
    answers: Answers = []
    for module, arguments in calls:
        answers.append(action._execute_module(module, dict(arguments), task_vars=variables))
        if is_last(answers[-1], check_mode=action._task.check_mode):
            break
    return answers


def _run_alone(action: ActionBase, calls: Sequence[Call], variables: Mapping[str, Any]) -> Answers:
    checked = []
    for module, arguments in calls:
        name = module.removeprefix(OURS)
        options = import_module(f"{__package__.rpartition('.')[0]}.modules.{name}").DOCUMENTATION["options"]
        # A path is the host's: it is not for this machine to say what "~" means there.
        result = ArgumentSpecValidator(argument_spec(options, path="str")).validate(dict(arguments))
        if result.error_messages:
            return [{"failed": True, "msg": f"{module}: {', '.join(result.error_messages)}"}]
        checked.append((name, result.validated_parameters))
    sent = program(checked, check_mode=action._task.check_mode, diff=action._task.diff)
    python = f"{interpreter(action, variables)} -I -S -c {shlex.quote(BOOT)}"
    command = f"{action._compute_environment_string()} {python}".strip()
    done = action._low_level_execute_command(command, in_data=sent)
    answer: dict[str, Any] = action._parse_returned_data(done, PROFILE)
    if answer.get("failed"):
        return [answer]
    answers = answer.get("answers")
    if not isinstance(answers, list) or not 0 < len(answers) <= len(calls):
        raise UnusableError("it is no list of answers")
    if not all(isinstance(each, dict) for each in answers):
        raise UnusableError("one of its answers is no object")
    for each in answers:
        remove_internal_keys(each)
    if len(answers) < len(calls) and not is_last(answers[-1], check_mode=action._task.check_mode):
        raise UnusableError(f"it has {len(answers)} of {len(calls)} answers")
    return answers


def program(calls: Sequence[Call], *, check_mode: bool = False, diff: bool = False) -> bytes:
    """Return what Python runs on the host: the modules, and what those of `calls` are told."""
    content = io.BytesIO(_PROGRAM)
    encoder = get_module_encoder(PROFILE, Direction.CONTROLLER_TO_MODULE)
    told = {"modules": calls, "check_mode": check_mode, "diff": diff}
    with zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("plugins/module_utils/told.json", json.dumps(told, cls=encoder))
    return content.getvalue()


def interpreter(action: ActionBase, variables: Mapping[str, Any]) -> str:
    """Return the host's Python: that of the inventory, or what Ansible has found there, or python3."""
    said = constants.config.get_config_value("INTERPRETER_PYTHON", variables=dict(variables))
    python = str(action._templar.template(said))
    found = variables.get("ansible_facts", {}).get("discovered_interpreter_python", "python3")
    return str(found if python.startswith("auto") else python)
