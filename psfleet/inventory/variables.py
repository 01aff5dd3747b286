"""The rules for values of inventory variables: the trainer's own, and those of argument_specs."""

import ipaddress
import re
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import PurePosixPath

from plugins.module_utils.network.fence_rules import to_reach
from psfleet.inventory.controller_files import controller_path
from psfleet.inventory.named_programs import FLAGS, OPTION, VARIABLE, named_programs_rule
from psfleet.inventory.requested_tasks import tasks_rule
from psfleet.inventory.success_policy import POLICY_RULE
from psfleet.inventory.success_policy import VARIABLE as SUCCESS
from psfleet.inventory.task_environment import TASK_ENVIRONMENT
from trainer.contract.plan import JOBS
from trainer.contract.rules import BOOLEAN, Rule, checked, integer, number, or_null, to_integer, to_text
from trainer.contract.settings import PER_HOST, RULES

PREFIX = "trainer_"
PORT_RANGE = (1024, 65535)

_HOST_NAME = re.compile(r"(?!.{254})[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_CLUSTER_NAME = re.compile(r"[a-z][a-z0-9]{0,30}")
_USER = re.compile(r"(?!root$)[a-z_][a-z0-9_-]{0,26}")
# A program's environment may not set the variables that psfleet itself sets for it.
_SETTABLE = re.compile(r"(?!PSFLEET_|(?:TF_CONFIG|PYTHONPATH|CUDA_VISIBLE_DEVICES)$)[A-Za-z_][A-Za-z0-9_]*")
_DIRECTORY = re.compile(r"(/[A-Za-z0-9][A-Za-z0-9._-]*)+")
# A program may write below its task's own /tmp and /var/tmp, and in its working directory.
_COLLECTED = re.compile(
    r"(?:/(?:var/)?tmp/)?[A-Za-z0-9_][A-Za-z0-9_.=,+@-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.=,+@-]*)*"
)


def _matching(pattern: re.Pattern[str], expected: str) -> Rule:
    return checked(expected, to_text, pattern.fullmatch)


def bracketed(address: str) -> str:
    """Return a bare IPv6 address in brackets, so that a port can follow; any other text unchanged.

    Example: bracketed("fd00::1") -> "[fd00::1]"
    """
    try:
        return f"[{address}]" if ipaddress.ip_address(address).version == 6 else address
    except ValueError:
        return address


def _to_address(value: object) -> str:
    address = to_text(value)
    if address.startswith("[") and address.endswith("]") and "%" not in address:
        return f"[{ipaddress.IPv6Address(address[1:-1])}]"
    if address and not _HOST_NAME.fullmatch(address):
        raise ValueError(value)
    return address


def is_host_name(name: str) -> bool:
    """Return whether a host can have this inventory name: a name that can be resolved, or an address.

    False for "". The name is not looked up.
    """
    try:
        return bool(_to_address(bracketed(name)))
    except ValueError:
        return False


def _to_gpus(value: object) -> tuple[int, ...]:
    if isinstance(value, str):  # the text from -e: "[0, 1]" or "0,1"
        value = [gpu for gpu in value.strip().strip("[]").split(",") if gpu.strip()]
    if not isinstance(value, Sequence):
        raise ValueError(value)
    gpus = tuple(to_integer(gpu) for gpu in value)
    if len(set(gpus)) < len(gpus) or min(gpus, default=0) < 0:
        raise ValueError(value)
    return gpus


def _to_entry(value: object) -> str:
    path = PurePosixPath(to_text(value))
    if not path.name or path.is_absolute() or ".." in path.parts:
        raise ValueError(value)
    return str(path)


def _to_argument(value: object) -> str:
    if not isinstance(value, (str, int, float)) or isinstance(value, bool) or "\0" in str(value):
        raise ValueError(value)
    return str(value)


def _to_arguments(value: object) -> list[str]:
    if isinstance(value, str):  # the text from -e: "--layers 3"
        value = shlex.split(value)
    if not isinstance(value, Sequence):
        raise ValueError(value)
    return list(map(_to_argument, value))


def _to_collected(value: object) -> list[str]:
    paths = [path.rstrip("/") for path in _to_arguments(value)]
    if not all(map(_COLLECTED.fullmatch, paths)):
        raise ValueError(value)
    return paths


def _to_environment(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(_SETTABLE.fullmatch(str(name)) for name in value):
        raise ValueError(value)
    return {str(name): _to_argument(text) for name, text in value.items()}


def _to_model(value: object) -> object:
    """Return the name of a built-in model, or if it ends in ".py", the absolute path on the controller.

    Raises ValueError for any other value. Whether the file exists is not checked.
    """
    model = to_text(value).strip()
    return str(controller_path(model)) if model.endswith(".py") else RULES["model"].convert(model)


def _to_reachable(value: object) -> list[str]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ValueError(value)
    for place in value:
        to_reach(to_text(place))
    return list(value)


_PORT = integer(*PORT_RANGE)
_PORT_OR_NULL = or_null(_PORT, "the next one from trainer_base_port")
_GPUS = Rule("a list of distinct GPU numbers >= 0, such as [0, 1]", _to_gpus)
_PATH = checked(
    "a path on this machine, or empty for none",
    lambda value: "" if value is None else to_text(value).strip(),
    lambda path: "\0" not in path,
)
_TASK_KEYS = {"index": integer(0), "port": _PORT}
_PS_KEYS = {**_TASK_KEYS, "gpus": _GPUS}
_WORKER_KEYS = {**_PS_KEYS, **{name: RULES[name] for name in RULES if name in PER_HOST}}
_PROGRAM_RULES: Mapping[str, Rule] = {
    "trainer_program": _PATH,
    "trainer_program_entry": Rule(
        "the path of a Python file within trainer_program, such as main.py", _to_entry
    ),
    "trainer_program_arguments": Rule(
        'a list of texts, such as ["--layers", "3"]; true and null stand in quotes', _to_arguments
    ),
    "trainer_program_environment": Rule(
        'names and texts, such as {TF_USE_LEGACY_KERAS: "1"}; not PSFLEET_*, TF_CONFIG, PYTHONPATH, '
        "CUDA_VISIBLE_DEVICES; true and null stand in quotes",
        _to_environment,
    ),
    FLAGS: or_null(BOOLEAN, "true without a group chief, false with one"),
    **dict.fromkeys((f"trainer_program_{name}" for name in ("observed", "tensorflow1")), BOOLEAN),
    "trainer_program_requirements": _PATH,
    "trainer_program_end_deadline_minutes": number(0),
    "trainer_program_collect": Rule(
        "a list of paths below /tmp, or relative to the run's directory, of letters, digits and _.=,+@-, "
        'such as ["/tmp/model", "results"]',
        _to_collected,
    ),
}
ADDRESS = Rule(
    'a name, an IPv4 address, or an IPv6 address in brackets and quotes such as "[fd00::1]"; no port',
    _to_address,
)
_USER_RULE = _matching(
    _USER, "a system user's name of at most 27 lower case letters, digits, '_' and '-'; not root"
)
_DIRECTORY_RULE = _matching(_DIRECTORY, "an absolute path of letters, digits, '.', '_', '-' and '/'")

TRAINER_RULES: Mapping[str, Rule] = {
    "trainer_cluster_name": _matching(
        _CLUSTER_NAME,
        f"a lower case letter, then at most 30 lower case letters and digits ({_CLUSTER_NAME.pattern})",
    ),
    "trainer_address": ADDRESS,
    "trainer_base_port": _PORT,
    "trainer_ps_port": _PORT_OR_NULL,
    "trainer_worker_port": _PORT_OR_NULL,
    "trainer_chief_port": _PORT_OR_NULL,
    "trainer_evaluator_port": _PORT_OR_NULL,
    "trainer_ps_tasks": tasks_rule("ps", _PS_KEYS),
    "trainer_worker_tasks": tasks_rule("worker", _WORKER_KEYS),
    "trainer_ps_gpus": _GPUS,
    "trainer_worker_gpus": _GPUS,
    **_PROGRAM_RULES,
    VARIABLE: named_programs_rule(_PROGRAM_RULES),
    "trainer_program_may_reach": Rule(
        'a list of addresses, networks and names, with ":port", ":first-last" or, for all ports, nothing, '
        'such as ["10.0.0.0/8:443", "[fd00::1]:9000-9010", "storage.example.org"]',
        _to_reachable,
    ),
    "trainer_encryption_port": _PORT,
    "trainer_data_source": _PATH,
    "trainer_user": _USER_RULE,
    "ssh_mesh_user": _USER_RULE,
    "ssh_mesh_port": or_null(integer(1, 65535), "ansible_port, or 22"),
    "trainer_install_directory": _DIRECTORY_RULE,
    "trainer_configuration_directory": _DIRECTORY_RULE,
    "trainer_state_directory": _DIRECTORY_RULE,
    "trainer_log_directory": _DIRECTORY_RULE,
    "trainer_environment": TASK_ENVIRONMENT,
    "trainer_log_megabytes": integer(1),
    "trainer_watchdog_seconds": integer(20),
    "training_run_deadline_minutes": number(0),
    SUCCESS: POLICY_RULE,
    "training_run_hook": Rule(
        "a command and its arguments, or empty for none", lambda value: shlex.split(to_text(value))
    ),
    "trainer_releases_to_keep": integer(1),
    "training_run_keep": integer(0),
    "trainer_metrics_directory": _matching(
        re.compile(rf"(?:{_DIRECTORY.pattern})?"), f"{_DIRECTORY_RULE.expected}, or empty for none"
    ),
    "trainer_metrics_interval_seconds": integer(1),
    "trainer_evaluation_deadline_seconds": integer(1),
    **{PREFIX + name: rule for name, rule in RULES.items()},
    "trainer_model": Rule(RULES["model"].expected, _to_model),
}

# The variables that decide which tasks a host has and where they listen.
PLACING_VARIABLES = {
    "trainer_address",
    "trainer_base_port",
    *(f"trainer_{job}_port" for job in JOBS),
    *(f"trainer_{job}_{what}" for job in ("ps", "worker") for what in ("tasks", "gpus")),
}
# The variables that a host may set for itself. Every other trainer variable has one value for the cluster.
HOST_VARIABLES = PLACING_VARIABLES | {"trainer_environment", *(PREFIX + name for name in PER_HOST)}

# The names that playbooks accept with -e, although they are variables of no role.
ON_COMMAND_LINE = ("run_id", OPTION)
# {name that people try: advice, which replaces the closest known name}
NOT_OFFERED = {
    "trainer_ps_gpu": "write trainer_ps_gpus, a list such as [0]",
    "trainer_worker_gpu": "write trainer_worker_gpus, a list such as [0]",
    "trainer_gpus": "write trainer_worker_gpus, a list such as [0]",
    "ssh_mesh_home": "remove it: the login's home is the folder ssh in trainer_configuration_directory",
    "trainer_chief_tasks": "a cluster has one chief, the host of the group chief",
    "trainer_evaluator_tasks": "a cluster has one evaluator, the host of the group evaluator",
    "tensorflow_environment_bytes": "remove it: psfleet computes the space from the wheels",
    "tensorboard_environment_bytes": "remove it: psfleet computes the space from the wheels",
    "training_program_releases_to_keep": "write trainer_releases_to_keep, which counts programs, too",
    "trainer_chief_gpus": "a chief sees no GPU; a worker sees those of trainer_worker_gpus",
    "trainer_evaluator_gpus": "an evaluator sees no GPU; a worker sees those of trainer_worker_gpus",
}


def rules(specifications: Mapping[str, Mapping[str, object]]) -> dict[str, Rule]:
    """Return {variable: its rule}: its rule in TRAINER_RULES, or else its type and choices in argument_specs.

    `specifications` is {variable: its entry in a role's argument_specs}.
    """
    return {
        name: TRAINER_RULES.get(name) or _specified_rule(specification)
        for name, specification in specifications.items()
    }


def unknown_name_advice(
    name: str, known: Sequence[str], prefixes: Sequence[str], *, on_command_line: bool
) -> str | None:
    """Return advice about a variable that no role knows, such as "did you mean trainer_steps?".

    Return None if the name is known, or has nothing to do with psfleet. A name concerns psfleet if it has one
    of the roles' `prefixes`, resembles a `known` name, or is followed by ":". On the command line, a setting
    without its prefix does, too: `-e steps=400` would change nothing.
    """
    known = (*known, *(ON_COMMAND_LINE if on_command_line else ()))
    if ":" in name:  # {ansible_host:10.0.0.1}
        variable, _, value = name.partition(":")
        return f"write `{variable}: {value}`, with a blank after the colon"
    if name in known or name.startswith(("_", "ansible_")):
        return None
    if name in NOT_OFFERED:
        return NOT_OFFERED[name]
    if on_command_line and PREFIX + name in known:
        return f"did you mean {PREFIX}{name}?"
    ours = name.startswith(tuple(prefixes))
    close = get_close_matches(name, known, n=1, cutoff=0.6 if ours else 0.88)
    if close:
        return f"did you mean {close[0]}?"
    return "the variables are listed in docs/inventory.md" if ours else None


def _to_text(value: object) -> str:
    if value is None or isinstance(value, (list, dict)):
        raise ValueError(value)
    return str(value)


_SPECIFIED_TYPES: Mapping[str, Rule] = {
    "int": Rule("an integer", to_integer),
    "float": Rule("a number", lambda value: float(str(value))),
    "bool": BOOLEAN,
    "str": Rule("a text", _to_text),
    "path": Rule("a path", _to_text),
    "list": checked("a list", lambda value: value, lambda value: isinstance(value, list)),
    "dict": checked("a mapping", lambda value: value, lambda value: isinstance(value, dict)),
}


def _as_written(choice: str) -> str:
    """Return a choice as it must be written in YAML: in quotes unless it begins with a letter.

    3.10 without quotes is a number, equal to 3.1.
    """
    return choice if re.match("[A-Za-z]", choice) else f'"{choice}"'


def _specified_rule(specification: Mapping[str, object]) -> Rule:
    """Return the rule that an entry of argument_specs describes with its type and choices.

    Null is allowed if the entry has no default.
    """
    rule = _SPECIFIED_TYPES[str(specification["type"])]
    choices = specification.get("choices")
    if isinstance(choices, list):
        rule = checked(f"one of {', '.join(map(_as_written, choices))}", rule.convert, choices.__contains__)
    if specification.get("default") is not None:
        return rule
    return Rule(f"{rule.expected}, or null", lambda value: None if value is None else rule.convert(value))
