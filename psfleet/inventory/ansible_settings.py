"""Finds the Ansible settings that psfleet needs and that the user's own ansible.cfg lacks."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

from psfleet.inventory.problems import InventoryProblem, named
from psfleet.inventory.ssh_arguments import EXPECTED, VARIABLES, unsafe_options
from trainer.contract.rules import BOOLEAN

# {setting: what goes wrong with another value}. With another value of the first two, a host could act on the
# controller, or pass for another host. The others are Ansible's defaults, on which the playbooks rely.
DANGERS = {
    "inject_facts_as_vars": "a compromised host could set variables on this machine through its facts, and "
    "so run commands here",
    "host_key_checking": "an attacker on the network could impersonate a host, and receive what is sent to "
    "it",
    "strategy": "a host would begin a task before all others have ended the one before",
    "fact_caching": "answers of an earlier run would be taken for today's",
}
# {setting: values that the playbooks accept}, as Ansible converts them and without "ansible.builtin.".
ACCEPTED: Mapping[str, Collection[object]] = {
    "inject_facts_as_vars": (False,),
    "host_key_checking": (True,),
    "strategy": ("linear", "debug"),  # debug is linear with a prompt after a failure
    "fact_caching": ("memory",),
}
# The variables of a host that set host_key_checking in Ansible's connection plugin.
HOST_KEY_VARIABLES = ("ansible_host_key_checking", "ansible_ssh_host_key_checking")
# {name that Ansible once gave to a variable: name that psfleet reads}
OLD_NAMES = {f"ansible_ssh_{name}": f"ansible_{name}" for name in ("host", "port", "user")}
# Settings that each project chooses for itself.
_PROJECT_SETTINGS = {"inventory", "collections_path"}


def parse_configuration(text: str) -> ConfigParser:
    """Return the parsed configuration `text`, by the rules with which Ansible reads ansible.cfg.

    Raises configparser.Error if it is invalid.
    """
    parser = ConfigParser(interpolation=None, strict=False, inline_comment_prefixes=(";",))
    parser.read_string(text)
    return parser


def missing_lines(ours: str, theirs: str, environment: Iterable[str], unsafe: Collection[str]) -> list[str]:
    """Return the lines of the configuration `ours` that the user's configuration `theirs` lacks; [] for none.

    Both are texts of an ansible.cfg. The lines are the settings in `unsafe`, and all others that the user has
    not set, such as "retries = 3"; the heading of their section, such as "[ssh_connection]", comes before
    them. A user has set a setting if a line of `theirs` has its name, in any section and with any value, or
    if a variable in `environment` contains all words of the name (ANSIBLE_SSH_RETRIES,
    ANSIBLE_PYTHON_INTERPRETER). Settings of DANGERS that are not in `unsafe`, the inventory and the path of
    collections are never missing. Raises configparser.Error.
    """
    there = parse_configuration(theirs)
    decided = {name for section in there.sections() for name in there[section]}
    words = [set(name.lower().split("_")) for name in environment if name.startswith("ANSIBLE_")]
    lines = []
    wanted = parse_configuration(ours)
    for section in wanted.sections():
        lacks = [
            f"{name} = {value}"
            for name, value in wanted[section].items()
            if name in unsafe
            or (
                name not in {*DANGERS, *_PROJECT_SETTINGS, *decided}
                and not any({*name.split("_")} <= of_one for of_one in words)
            )
        ]
        lines += [f"[{section}]", *lacks] if lacks else []
    return lines


@dataclass(frozen=True)
class UnsafeSetting:
    """A setting of DANGERS with a `value` that the playbooks do not accept, and where the value comes from.

    `variables` are the environment variables that set it; they have precedence over any file. `lines` are the
    lines of the user's configuration that set a wrong value, such as "strategy = free in [defaults]".
    `unsafe_without_environment` is True if the value would be wrong without the environment, too, because of
    the configuration or Ansible's default.
    """

    name: str
    value: str
    variables: tuple[str, ...]
    lines: tuple[str, ...]
    unsafe_without_environment: bool


@dataclass(frozen=True)
class ConfigurationFile:
    """The configuration file that Ansible uses, and why Ansible uses it.

    `path` is the file, "" for none. `by_environment` is True if ANSIBLE_CONFIG names it. `folder` is the
    folder where the user typed the command. `open_folder` is True if everybody may write there; if so,
    Ansible ignores the ansible.cfg in it. `clone` is the folder of psfleet with a right ansible.cfg; None if
    psfleet is installed as a collection.
    """

    path: str
    by_environment: bool
    folder: Path
    open_folder: bool
    clone: Path | None

    @property
    def place(self) -> str:
        """The path of the file for missing lines: `path`, or if that is "", ansible.cfg in `folder`."""
        return self.path or f"{self.folder}/ansible.cfg"


def refusal(unsafe: Sequence[UnsafeSetting], file: ConfigurationFile) -> str:
    """Return the message that refuses `unsafe` settings: why, and what to do at each place that sets one."""
    reasons = [
        f"{each.name} is {each.value}, by {_origin(each, file)}: {DANGERS[each.name]}" for each in unsafe
    ]
    variables = dict.fromkeys(name for each in unsafe for name in each.variables)
    remedies = []
    if variables:
        remedies.append(
            f"Type `unset {' '.join(variables)}`, and remove that from where your shell sets it, such as "
            "~/.bashrc: the environment wins over every ansible.cfg"
        )
    if lacking := [each for each in unsafe if each.unsafe_without_environment]:
        remedies += _remedies_of_file(lacking, file)
    return ". ".join([*reasons, *remedies]) + "."


def _origin(setting: UnsafeSetting, file: ConfigurationFile) -> str:
    if setting.variables:
        return f"{' and '.join(setting.variables)} in the environment"
    return file.path if setting.lines else "Ansible's default"


def _remedies_of_file(lacking: Sequence[UnsafeSetting], file: ConfigurationFile) -> Iterator[str]:
    in_clone = file.clone == file.folder
    close = (
        f"type `chmod o-w {file.folder}`, because Ansible ignores an ansible.cfg where everybody may write"
    )
    if file.open_folder and in_clone and not file.by_environment:
        yield f"{close[0].upper()}{close[1:]}"
        return
    wrong = [line for each in lacking for line in each.lines]
    remove = f", and remove there: {'; '.join(wrong)}" if wrong else ""
    copy = f"copy the lines above into {file.place}{remove}"
    if file.open_folder and not file.path:
        copy = f"{close}, and {copy}"
    if file.by_environment and in_clone and not file.open_folder:
        yield f"Type `unset ANSIBLE_CONFIG`, so that {file.folder}/ansible.cfg is used again; or {copy}"
    elif file.clone and not in_clone and not file.by_environment:
        yield f"Type the command in {file.clone}, whose ansible.cfg has what is needed; or {copy}"
    else:
        yield f"{copy[0].upper()}{copy[1:]}"


def host_key_problems(variables: Mapping[str, Mapping[str, object]]) -> Iterator[InventoryProblem]:
    """Yield a problem for each variable that turns off host_key_checking, with all hosts that have it so.

    `variables` is {host: its variables}.
    """
    for name in HOST_KEY_VARIABLES:
        hosts = tuple(
            host for host, of_host in variables.items() if name in of_host and _is_off(of_host[name])
        )
        if hosts:
            what = f"{name} is false on {named(hosts)}: {DANGERS['host_key_checking']}; expected no"
            yield InventoryProblem(
                f"{what} such variable, and the hosts' keys in ~/.ssh/known_hosts", name, hosts
            )


def ssh_argument_problems(variables: Mapping[str, Mapping[str, object]]) -> Iterator[InventoryProblem]:
    """Yield a problem for each variable whose arguments make ssh accept any key of a host.

    Hosts with the same options share a problem. `variables` is {host: its variables}.
    """
    for name in VARIABLES:
        found: dict[str, list[str]] = {}
        for host, of_host in variables.items():
            if why := unsafe_options(str(of_host.get(name) or "")):
                found.setdefault(why, []).append(host)
        for why, hosts in found.items():
            what = f"{name} has {why} on {named(hosts)}: {DANGERS['host_key_checking']}; {EXPECTED}"
            yield InventoryProblem(what, name, tuple(hosts))


def old_name_problems(variables: Mapping[str, Mapping[str, object]]) -> Iterator[InventoryProblem]:
    """Yield one problem for each name of OLD_NAMES that hosts set, with all these hosts.

    `variables` is {host: its variables}.
    """
    for old, new in OLD_NAMES.items():
        if hosts := tuple(host for host, of_host in variables.items() if old in of_host):
            what = f"{old} is set on {named(hosts)}, and psfleet reads {new}; expected the name {new}"
            yield InventoryProblem(what, old, hosts)


def ssh_setting_refusal(name: str, value: str, origin: str) -> str:
    """Return the message that refuses a setting if its arguments make ssh accept any key; else "".

    `name` and `value` are the setting's; `origin` says where the value comes from, such as the path of an
    ansible.cfg. The message says why, and what to do.
    """
    why = unsafe_options(value)
    if not why:
        return ""
    return f"{name} has {why}, by {origin}: {DANGERS['host_key_checking']}; {EXPECTED}. Remove it there."


def _is_off(value: object) -> bool:
    try:
        return BOOLEAN.convert(value) is False
    except ValueError:  # Ansible reports it when it connects
        return False
