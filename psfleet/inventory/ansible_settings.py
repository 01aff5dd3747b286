"""Finds the Ansible settings that psfleet needs and that a user's own ansible.cfg lacks."""

from collections.abc import Collection, Iterable
from configparser import ConfigParser

# Name -> what goes wrong with another value. With another value of the first two, a host could act on the
# controller or pass for another host. The others are Ansible's defaults, which the playbooks rely on.
SAFE = {
    "inject_facts_as_vars": "a compromised host could set variables on this machine through its facts, and "
    "so run commands here",
    "host_key_checking": "an attacker on the network could impersonate a host, and receive what is sent to "
    "it",
    "strategy": "a host would begin a task before all others have ended the one before",
    "fact_caching": "answers of an earlier run would be taken for today's",
}
# Settings that each project chooses for itself.
_PROJECT_SETTINGS = {"inventory", "collections_path"}


def parsed(text: str) -> ConfigParser:
    """Return the configuration `text` as Ansible reads it. Raises configparser.Error."""
    parser = ConfigParser(interpolation=None, strict=False, inline_comment_prefixes=(";",))
    parser.read_string(text)
    return parser


def lacking_lines(ours: str, theirs: str, environment: Iterable[str], unsafe: Collection[str]) -> list[str]:
    """Return the lines of `ours` that a user's configuration `theirs` should get, with their sections.

    These are the settings named in `unsafe`, and all others that the user has not set. A user has set a name
    if a line of `theirs` has it, in any section and with any value, or if a variable in `environment`
    contains all words of the name (ANSIBLE_SSH_RETRIES, ANSIBLE_PYTHON_INTERPRETER). Raises
    configparser.Error.
    """
    there = parsed(theirs)
    decided = {name for section in there.sections() for name in there[section]}
    words = [set(name.lower().split("_")) for name in environment if name.startswith("ANSIBLE_")]
    lines = []
    wanted = parsed(ours)
    for section in wanted.sections():
        lacks = [
            f"{name} = {value}"
            for name, value in wanted[section].items()
            if name in unsafe
            or (
                name not in {*SAFE, *_PROJECT_SETTINGS, *decided}
                and not any({*name.split("_")} <= of_one for of_one in words)
            )
        ]
        lines += [f"[{section}]", *lacks] if lacks else []
    return lines
