"""The user's own programs: the one of `trainer_program`, and the named ones of `trainer_programs`."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from psfleet.inventory.problems import InventoryProblem
from trainer.contract.rules import (
    Rule,
    SettingProblem,
    SettingsError,
    as_given,
    checked,
    close_names,
    convert_all,
)

VARIABLE = "trainer_programs"
# The name that `-e` chooses a program with: -e program=mnist.
OPTION = "program"
FLAGS = "trainer_program_flags"
# The keys of a named program -> the variables that supply a key's value if the program lacks it.
PROGRAM_KEYS = {
    "path": "trainer_program",
    **{
        key: f"trainer_program_{key}"
        for key in (
            "entry",
            "arguments",
            "environment",
            "flags",
            "observed",
            "tensorflow1",
            "end_deadline_minutes",
            "collect",
            "requirements",
        )
    },
}
# If -e sets these, they apply only to the program that runs.
_PER_PROGRAM = ("trainer_program_entry", "trainer_program_requirements")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,39}")


@dataclass(frozen=True)
class Program:
    """A program: its `name`, and the `values` of its variables, {variable: converted value}.

    The name is "" for the program of trainer_program. `places` maps each variable to where the user set it,
    such as trainer_programs.mnist.entry.
    """

    name: str
    values: Mapping[str, Any]
    places: Mapping[str, str]


@dataclass(frozen=True)
class Programs:
    """All programs, which deploy.yml carries; train.yml runs the one at the index `running`.

    `unchosen` lists the names that a new run must choose from, () if there is no choice; until one is chosen,
    `running` is 0.
    """

    programs: tuple[Program, ...] = ()
    running: int = 0
    unchosen: tuple[str, ...] = ()


def named_programs_rule(rules: Mapping[str, Rule]) -> Rule:
    """Return the rule for `trainer_programs`; `rules` maps each variable of a program to its rule.

    The rule converts a value to {name: {key: value}}, with only the keys that the user wrote; `path` is
    required. It raises SettingsError with each invalid name, key and value.
    """
    of_keys = {key: rules[variable] for key, variable in PROGRAM_KEYS.items()}
    of_keys["path"] = checked("a Python file, or a folder with one", of_keys["path"].convert, bool)
    of_keys["arguments"] = _no_text(of_keys["arguments"])
    close_key = close_names("a key of a program", PROGRAM_KEYS)

    def unknown(key: str) -> str:
        return close_key(str(key).removeprefix("trainer_program_"))

    def convert(given: object) -> dict[str, dict[str, Any]]:
        if not isinstance(given, Mapping):
            raise ValueError(given)
        programs: dict[str, dict[str, Any]] = {}
        problems = []
        for name, keys in given.items():
            if not _NAME.fullmatch(str(name)):
                expected = "a name of at most 40 letters, digits, '_', '-' and '.', and no '.' first"
                problems.append(SettingProblem(f"[{as_given(str(name))}]", keys, expected))
            elif not isinstance(keys, Mapping):
                problems.append(SettingProblem(f".{name}", keys, "a mapping such as {path: train.py}"))
            else:
                whole = {"path": "", **keys}
                programs[str(name)], wrong = convert_all(whole, of_keys, unknown, f".{name}.")
                problems += wrong
        if problems:
            raise SettingsError(problems)
        return programs

    return Rule("names and what each program is, such as {mnist: {path: mnist.py}}", convert)


def _no_text(rule: Rule) -> Rule:
    """Return a rule that refuses every text and otherwise converts as `rule`.

    A list may be a text only in -e, not within `trainer_programs`.
    """

    def convert(value: object) -> object:
        if isinstance(value, str):
            raise ValueError(value)
        return rule.convert(value)

    return Rule(rule.expected, convert)


def programs_of(
    values: Mapping[str, Any], command_line: Mapping[str, object], given: Collection[str]
) -> Programs:
    """Return the programs of an inventory: trainer_program first, if it is set, then trainer_programs.

    `values` has the converted variables without the refused ones; if a variable of PROGRAM_KEYS was refused,
    the result has no programs. `given` has the names of the variables that the inventory or -e sets.
    `running` of the result is the index of the program that -e program=... names; 0 without it or for an
    unknown name. A program's own value has precedence over the variable for all programs; for the running
    one, -e has precedence over both. Variables of _PER_PROGRAM that -e sets are "" for the other programs,
    unless a program has its own value.
    """
    if not values.keys() >= {*PROGRAM_KEYS.values()}:
        return Programs()
    keys_of: dict[str, Mapping[str, Any]] = {"": {}} if values["trainer_program"] else {}
    keys_of |= values.get(VARIABLE, {})
    names, chosen = [*keys_of], _chosen(command_line)
    running = names.index(chosen) if chosen in names else 0
    overridden = {*PROGRAM_KEYS.values()} & command_line.keys() - {"trainer_program"}

    def program(name: str) -> Program:
        own = {PROGRAM_KEYS[key]: value for key, value in keys_of[name].items() if value is not None}
        of_all = {variable: values[variable] for variable in PROGRAM_KEYS.values()}
        # A value from -e applies to the program that runs, and overrides the inventory's value for all
        # programs.
        if name == names[running]:
            own = {variable: value for variable, value in own.items() if variable not in overridden}
        else:
            of_all |= {variable: "" for variable in _PER_PROGRAM if variable in overridden}
        places = {variable: variable for variable in PROGRAM_KEYS.values()}
        for key, variable in PROGRAM_KEYS.items():
            if name and (variable in own or variable not in given):
                places[variable] = f"{VARIABLE}.{name}.{key}"
        return Program(name, of_all | own, places)

    unchosen = tuple(names) if "" not in keys_of and not chosen and len(names) > 1 else ()
    return Programs(tuple(map(program, names)), running, unchosen)


def choice_problems(
    values: Mapping[str, Any], command_line: Mapping[str, object], unchosen: Sequence[str]
) -> Iterator[InventoryProblem]:
    """Yield a problem if -e program=... is unknown or contradicts -e trainer_program=...

    Yield one, too, for each variable in -e that belongs to one program while none is chosen. `unchosen` is
    that field of `Programs`, `values` are the converted variables.
    """
    chosen, names = _chosen(command_line), values.get(VARIABLE)
    if names is None:  # trainer_programs was refused
        return
    what = f"{OPTION} is {as_given(chosen)}"
    if chosen and chosen not in names:
        close = get_close_matches(chosen, names, n=1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        there = (
            f"one of {VARIABLE}: {', '.join(names)}{meant}" if names else f"it in {VARIABLE}, which is empty"
        )
        yield InventoryProblem(f"{what}; expected {there}", OPTION)
    elif chosen and "trainer_program" in command_line:
        what = f"{what}, and trainer_program is given with -e, too; expected one of the two"
        yield InventoryProblem(what, OPTION)
    for variable in _PER_PROGRAM:
        if unchosen and variable in command_line:
            what = f"{variable} is given with -e, and {VARIABLE} has several programs; expected also"
            yield InventoryProblem(
                f"{what} the program that it belongs to: -e {OPTION}={unchosen[0]}", variable
            )


def _chosen(command_line: Mapping[str, object]) -> str:
    return str(command_line.get(OPTION) or "")
