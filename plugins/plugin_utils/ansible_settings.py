"""Compares Ansible's settings with the settings that the playbooks need."""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.loader import connection_loader

from psfleet.inventory.ansible_settings import (
    ACCEPTED,
    ConfigurationFile,
    UnsafeSetting,
    missing_lines,
    parse_configuration,
    refusal,
    ssh_setting_refusal,
)
from psfleet.inventory.ssh_arguments import SETTINGS as SSH_ARGUMENTS
from psfleet.watch.terminal import escaping_display

display = escaping_display()
CLONE = Path(__file__).resolve().parents[2]
OURS = CLONE / "ansible.cfg"
# {setting: (its name in Ansible's own definitions, the plugin to which it belongs)}
DEFINED: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "inject_facts_as_vars": ("INJECT_FACTS_AS_VARS", {}),
    "host_key_checking": ("host_key_checking", {"plugin_type": "connection", "plugin_name": "ssh"}),
    "strategy": ("DEFAULT_STRATEGY", {}),
    "fact_caching": ("CACHE_PLUGIN", {}),
}


def settings_problem() -> str:
    """Return, in words, why Ansible's settings are unsafe for the playbooks; "" if they are safe.

    Also print the lines of psfleet's ansible.cfg that the user's configuration lacks, if there are any.
    """
    file = _configuration_file()
    theirs = Path(file.path).read_text(encoding="utf-8", errors="replace") if file.path else ""
    unsafe = list(_unsafe(theirs))
    lacks = [each.name for each in unsafe if each.unsafe_without_environment]
    if lines := missing_lines(OURS.read_text(encoding="utf-8"), theirs, os.environ, lacks):
        why = "for safety, speed and what is shown" if lacks else "for speed and for what is shown"
        decide = "" if lacks else "; a value of your own is fine, too, and is not mentioned again"
        head = f"To be copied into {file.place}, each below its section, {why}{decide}:"
        display.display("\n".join([head, "", *lines, ""]))
    return "\n".join(filter(None, [refusal(unsafe, file) if unsafe else "", *_unchecked_keys()]))


def _configuration_file() -> ConfigurationFile:
    folder = Path.cwd()
    return ConfigurationFile(
        path=constants.CONFIG_FILE or "",
        by_environment="ANSIBLE_CONFIG" in os.environ and bool(constants.CONFIG_FILE),
        folder=folder,
        open_folder=bool(folder.stat().st_mode & stat.S_IWOTH),
        clone=None if "ansible_collections" in CLONE.parts else CLONE,
    )


def _unchecked_keys() -> Iterator[str]:
    """Yield a text for each setting with arguments of ssh: why its value is refused, "" if it is accepted."""
    for name in SSH_ARGUMENTS:
        plugin = {"plugin_type": "connection", "plugin_name": "ssh"}
        value, origin = constants.config.get_config_value_and_origin(name, **plugin)
        kind, _, origin_name = str(origin).partition(": ")
        option = f"--{name.replace('_', '-')}"
        place = {"env": f"{origin_name} in the environment", "cli": option}.get(kind, str(origin))
        yield ssh_setting_refusal(name, str(value or ""), place)


def _unsafe(theirs: str) -> Iterator[UnsafeSetting]:
    """Yield the settings with values that the playbooks refuse.

    `theirs` is the user's configuration, as text.
    """
    connection_loader.get("ssh", class_only=True)  # this registers the plugin's settings
    for name, (defined, plugin) in DEFINED.items():
        value, origin = constants.config.get_config_value_and_origin(defined, **plugin)
        if _is_right(name, value):
            continue
        definition = constants.config.get_configuration_definition(defined, **plugin)
        of_environment = str(origin).startswith("env: ")
        variables = [each["name"] for each in definition["env"] if each["name"] in os.environ]
        lines = _lines(definition, theirs)
        yield UnsafeSetting(
            name=name,
            value=str(value).lower(),
            variables=tuple(variables) if of_environment else (),
            lines=tuple(line for line, given in lines.items() if not _is_right(name, given)),
            unsafe_without_environment=not _is_right(name, next(iter(lines.values()), definition["default"])),
        )


def _lines(definition: Mapping[str, Any], theirs: str) -> dict[str, str]:
    """Return {line: its value} for the lines that set this setting; the first line is the one that counts.

    `theirs` is the text of the configuration. Example of a line: "host_key_checking = False in [defaults]"
    """
    there = parse_configuration(theirs)
    places = [(each["section"], each["key"]) for each in reversed(definition["ini"])]
    return {
        f"{key} = {there[section][key]} in [{section}]": there[section][key]
        for section, key in places
        if there.has_option(section, key)
    }


def _is_right(name: str, value: object) -> bool:
    if isinstance(value, str):
        value = boolean(value, strict=False) if True in ACCEPTED[name] or False in ACCEPTED[name] else value
    return (value.removeprefix("ansible.builtin.") if isinstance(value, str) else value) in ACCEPTED[name]
