"""Compares Ansible's settings with those that the playbooks need."""

import os
from pathlib import Path

from ansible import constants
from ansible.plugins.loader import connection_loader
from ansible.utils.display import Display

from psfleet.inventory.ansible_settings import SAFE, lacking_lines

display = Display()
OURS = Path(__file__).resolve().parents[2] / "ansible.cfg"


def settings_problem() -> str:
    """Return why Ansible's settings are unsafe, "" if they are not.

    Also prints, once, all lines that the user's configuration lacks.
    """
    unsafe = _unsafe()
    file = constants.CONFIG_FILE
    theirs = Path(file).read_text(encoding="utf-8", errors="replace") if file else ""
    place = file or "an ansible.cfg in this folder"
    if lines := lacking_lines(OURS.read_text(encoding="utf-8"), theirs, os.environ, unsafe):
        why = "for safety, speed and what is shown" if unsafe else "for speed and for what is shown"
        decide = "" if unsafe else "; a value of your own is fine, too, and is not mentioned again"
        head = f"To be copied into {place}, each below its section, {why}{decide}:"
        display.display("\n".join([head, "", *lines, ""]))
    if not unsafe:
        return ""
    reasons = (f"{name} is {value}, by {origin}: {SAFE[name]}" for name, (value, origin) in unsafe.items())
    remedy = f"Copy the lines above into {place}, and remove the lines that contradict them."
    return ". ".join([*reasons, remedy])


def _unsafe() -> dict[str, tuple[str, str]]:
    """Return the unsafe settings: name -> its value, and where that comes from."""
    connection_loader.get("ssh", class_only=True)  # this registers the plugin's settings
    of_ssh = {"plugin_type": "connection", "plugin_name": "ssh"}
    found = {
        "inject_facts_as_vars": constants.config.get_config_value_and_origin("INJECT_FACTS_AS_VARS"),
        "host_key_checking": constants.config.get_config_value_and_origin("host_key_checking", **of_ssh),
        "strategy": constants.config.get_config_value_and_origin("DEFAULT_STRATEGY"),
        "fact_caching": constants.config.get_config_value_and_origin("CACHE_PLUGIN"),
    }
    right: dict[str, tuple[object, ...]] = {
        "inject_facts_as_vars": (False,),
        "host_key_checking": (True,),
        "strategy": ("linear", "debug"),  # debug is linear with a prompt after a failure
        "fact_caching": ("memory",),
    }
    return {
        name: (str(value).lower(), "Ansible's default" if origin == "default" else str(origin))
        for name, (value, origin) in found.items()
        if (value.removeprefix("ansible.builtin.") if isinstance(value, str) else value) not in right[name]
    }
