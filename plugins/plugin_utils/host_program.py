"""The two ways in which modules run on a host: Ansible's, and one of psfleet's own.

By its own, psfleet's modules are run by Python alone: several in one stream there, their answers in one
back. Ansible's sends its own library with each call, which the host compiles anew. The arguments are looked
at here, by the modules' documentation. Where a connection gives a command nothing to read, it is Ansible's.
"""

import io
import json
import shlex
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.json import Direction, get_module_encoder
from ansible.plugins.action import ActionBase

from psfleet.run.host_answers import UnusableError

from ..module_utils.bare_module import is_last
from ..module_utils.documented import argument_spec

OURS = "psfleet.cluster."
# The name by which Ansible keeps what it has found as the Python of a host.
PYTHON_FACT = "discovered_interpreter_python"
PLUGINS = Path(__file__).resolve().parents[1]
# Both sides speak plain JSON, without Ansible's tags.
PROFILE = "legacy"
# What comes in is an archive that Python can run. It is in memory: of a disk that is full a host is to tell.
BOOT = (
    "import os, runpy, sys\n"
    "with open(os.memfd_create('psfleet'), 'wb') as file:\n"
    "    file.write(sys.stdin.buffer.read())\n"
    "    file.flush()\n"
    "    runpy.run_path(f'/proc/self/fd/{file.fileno()}', run_name='__main__')"
)
# What it prints begins a line with this.
ANSWERS = '{"answers": '
# Of the hosts: `zip(strict=True)` is of it. An older one, which Ansible takes, is to say so itself.
OLDEST_PYTHON = (3, 10)
TOO_OLD = f"psfleet needs Python {'.'.join(map(str, OLDEST_PYTHON))} or newer there"
MAIN = (
    "import sys\n"
    f"if sys.version_info < {OLDEST_PYTHON}:\n"
    f"    sys.exit('{TOO_OLD}, and ' + sys.executable + ' is ' + sys.version.split()[0])\n"
    "from plugins.module_utils.bare_module import main\n"
    "main()\n"
)

# The name of a module, and its arguments.
Call = tuple[str, Mapping[str, Any]]


class NotRunError(AnsibleActionFail):
    """Modules did not run on a host, or not to their answers; `output` is what came instead."""

    def __init__(self, names: str, output: Mapping[str, Any]) -> None:
        printed = [str(output.get(name) or "").strip() for name in ("msg", "stdout", "stderr")]
        super().__init__("\n".join([f"{names} gave no answer", *filter(None, printed)]))
        self.output = output


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


def run_on_host(
    action: ActionBase, calls: Sequence[Call], variables: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    """Yield what the host of an action says that modules answer, of which nothing was looked at.

    The last may have failed, or need an archive. Raises UnusableError for what is no answer, and NotRunError
    where there is none.
    """
    ours = all(module.startswith(OURS) for module, _ in calls)
    if ours and action._is_pipelining_enabled("new"):
        yield from _run_alone(action, calls, variables)
        return
    for module, arguments in calls:
        answer = _run_by_ansible(action, module, arguments, variables)
        yield answer
        if is_last(answer, check_mode=action._task.check_mode):
            return


def _run_by_ansible(
    action: ActionBase, module: str, arguments: Mapping[str, Any], variables: Mapping[str, Any]
) -> Mapping[str, Any]:
    try:
        answer: dict[str, Any] = action._execute_module(module, dict(arguments), task_vars=variables)
    except AnsibleError:
        raise
    except Exception as error:  # it stumbles over answers of other kinds than its own modules give
        raise UnusableError(f"Ansible cannot read it: {type(error).__name__}: {error}") from error
    # It says so of what is no JSON.
    if "module_stdout" in answer:
        told = {name: answer.get(f"module_{name}") for name in ("stdout", "stderr")}
        raise NotRunError(module, {"msg": answer.get("msg"), "rc": answer.get("rc"), **told})
    # Of warnings and exceptions it makes objects of its own.
    if isinstance(warnings := answer.get("warnings"), list):
        answer["warnings"] = [_text_of(warning) for warning in warnings]
    if answer.get("failed") and "exception" in answer:
        answer.setdefault("msg", _text_of(answer["exception"]))
    return answer


def _text_of(message: object) -> object:
    return getattr(getattr(message, "event", None), "msg", message)


def _run_alone(
    action: ActionBase, calls: Sequence[Call], variables: Mapping[str, Any]
) -> Sequence[Mapping[str, Any]]:
    told = []
    for module, arguments in calls:
        name = module.removeprefix(OURS)
        options = import_module(f"{__package__.rpartition('.')[0]}.modules.{name}").DOCUMENTATION["options"]
        # A path is the host's: it is not for this machine to say what "~" means there.
        result = ArgumentSpecValidator(argument_spec(options, path="str")).validate(dict(arguments))
        if result.error_messages:
            return [{"failed": True, "msg": f"{module}: {', '.join(result.error_messages)}"}]
        told.append((name, result.validated_parameters))
    sent = program(told, check_mode=action._task.check_mode, diff=action._task.diff)
    python = f"{interpreter(action, variables)} -I -S -c {shlex.quote(BOOT)}"
    command = f"{action._compute_environment_string()} {python}".strip()
    done = action._low_level_execute_command(command, in_data=sent)
    # A host may greet whoever comes, before and after.
    line = next((line for line in done["stdout"].split("\n") if line.startswith(ANSWERS)), None)
    if line is None:
        raise NotRunError(", ".join(module for module, _ in calls), done)
    return answers_in(line, len(calls), check_mode=action._task.check_mode)


def answers_in(line: str, asked: int, *, check_mode: bool) -> Sequence[Mapping[str, Any]]:
    """Return the answers in a line that a host has printed. Raises UnusableError for what are none."""
    try:
        told = json.loads(line)
    except ValueError as error:
        raise UnusableError(f"it is no JSON: {error}") from error
    answers = told.get("answers") if isinstance(told, dict) else None
    if not isinstance(answers, list) or not 0 < len(answers) <= asked:
        raise UnusableError("it is no list of answers")
    if not all(isinstance(each, dict) for each in answers):
        raise UnusableError("one of its answers is no object")
    if len(answers) < asked and not is_last(answers[-1], check_mode=check_mode):
        raise UnusableError(f"it has {len(answers)} of {asked} answers")
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
    found = variables.get("ansible_facts", {}).get(PYTHON_FACT, "python3")
    return str(found if python.startswith("auto") else python)
