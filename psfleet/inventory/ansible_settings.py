"""What Ansible's configuration lacks of psfleet's own, where somebody has a project of their own."""

from collections.abc import Collection, Iterable
from configparser import ConfigParser

# Name -> what goes wrong with another value. With one of the first two a host could act on the controller, or
# pass for another; the playbooks rely on the others, which are Ansible's defaults.
SAFE = {
    "inject_facts_as_vars": "a host that somebody has taken over could set variables on this machine by what "
    "it tells of itself, and so run commands here",
    "host_key_checking": "whoever sits on the wire could pass for a host, and get what is meant for it",
    "strategy": "hosts would begin a step before all others have ended the one before it",
    "fact_caching": "what hosts answered in another run would pass for what they answer now",
}
# What a clone has, and each project for itself.
_OF_A_PROJECT = {"inventory", "collections_path"}


def parsed(text: str) -> ConfigParser:
    """Return a configuration as Ansible reads it. Raises configparser.Error."""
    parser = ConfigParser(interpolation=None, strict=False, inline_comment_prefixes=(";",))
    parser.read_string(text)
    return parser


def lacking_lines(ours: str, theirs: str, environment: Iterable[str], unsafe: Collection[str]) -> list[str]:
    """Return the lines of `ours` to be copied: those of `unsafe` names, and those of which nobody decided.

    Somebody has decided where a line of `theirs`, whatever its section and value, has the name, or a variable
    of the environment all its words (ANSIBLE_SSH_RETRIES, ANSIBLE_PYTHON_INTERPRETER).
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
                name not in {*SAFE, *_OF_A_PROJECT, *decided}
                and not any({*name.split("_")} <= of_one for of_one in words)
            )
        ]
        lines += [f"[{section}]", *lacks] if lacks else []
    return lines
