"""The files on the controller that the inventory names: the user's programs, their requirements, and data."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plugins.module_utils.content_directory import content_files, content_hash
from psfleet.inventory.named_programs import PROGRAM_KEYS, Program
from psfleet.inventory.problems import InventoryProblem
from trainer.contract.data_files import first_problem
from trainer.contract.model_card import Card
from trainer.contract.rules import as_given

PROGRAM_MEGABYTES = 100

# (variable, what is wrong with its value, what is expected)
_Finding = tuple[str, str, str]


def program_fact(program: Program, hosts: Sequence[str]) -> tuple[dict[str, Any], list[InventoryProblem]]:
    """Return (an element of the fact `cluster_programs`, problems with the program's files).

    The element has the `name` of the program, its values by the keys of PROGRAM_KEYS with absolute paths,
    `source` in place of `path`, and `release`, the hash of its content: "" or absent if there are problems
    with the content. If the path is that of a single file, `entry` is its name. `packages` is what
    `_requirements_fact` returns first, {} without requirements. `hosts` are the hosts
    that have the program's variables; the problems name them.
    """
    values, places = program.values, program.places
    fact = {"name": program.name, **{key: values[variable] for key, variable in PROGRAM_KEYS.items()}}
    source, requirements = controller_path(fact.pop("path")), controller_path(fact["requirements"])
    fact["source"] = str(source)
    if not _is_accessible(source, Path.is_dir):
        fact["entry"] = source.name
    if fact["requirements"]:
        fact["requirements"] = str(requirements)
    findings: list[_Finding] = []
    try:
        findings += _program_findings(source, fact["entry"], places["trainer_program"])
        fact["release"] = "" if findings else content_hash(source)
    except ValueError as error:
        findings.append(("trainer_program", f"where {error}", "files and folders that can be carried"))
    except OSError as error:
        unread = f"where {error.filename} cannot be read ({error.strerror})"
        findings.append(("trainer_program", unread, "files that you may read"))
    fact["packages"] = {}
    if fact["requirements"]:
        fact["packages"], wrong = _requirements_fact(requirements, places["trainer_program_requirements"])
        findings += wrong
    return fact, _problems(findings, values, hosts, places)


def _requirements_fact(file: Path, variable: str) -> tuple[dict[str, Any], list[_Finding]]:
    """Return (what the roles need to know of a program's requirements, what is wrong with their file).

    The first has the keys `key`, which names the environment's link on the hosts, `file`, `variable` (the
    place where the user set the file), `tensorflow` (its version), and `pythons` (the versions of Python that
    fit all wheels, the oldest first). It is {} if something is wrong.
    """
    # This needs a package, which a check of playbooks without requirements does without.
    from psfleet.inventory.program_requirements import EXPECTED, ProgramRequirements, RequirementsError

    name, wanted = "trainer_program_requirements", "a requirements.txt on this machine"
    if not _is_accessible(file, Path.is_file):
        return {}, [(name, f"and there is no file {file}", wanted)]
    try:
        read = ProgramRequirements.read(file)
    except RequirementsError as error:
        return {}, [(name, f"where {error}", EXPECTED)]
    except OSError as error:
        return {}, [(name, f"and {file} cannot be read ({error.strerror})", wanted)]
    named = {"key": read.key, "file": str(file), "variable": variable}
    return {**named, "tensorflow": read.tensorflow, "pythons": list(read.pythons)}, []


def data_source(
    values: Mapping[str, Any], hosts: Sequence[str], card: Card | None = None
) -> tuple[str, list[InventoryProblem]]:
    """Return (absolute path of the data that deploy.yml carries, problems with the data).

    The path is "" if `trainer_data_source` is not set; it is returned also if there are problems. `values`
    has the cluster's converted variables without the refused ones; `hosts` are the hosts that have them. With
    a `card`, the first rows must be what the card's model reads; without one, any content is accepted,
    because a program reads what it likes.
    """
    if not values.get("trainer_data_source"):
        return "", []
    source = controller_path(values["trainer_data_source"])
    found = ""
    if not _is_accessible(source):
        found = f"and there is no {source}"
    elif not os.access(source, os.R_OK):
        found = "which you may not read"
    elif not (any(source.iterdir()) if source.is_dir() else source.stat().st_size):
        found = "which is empty"
    expected = "a file or folder on this machine, with something in it"
    if not found and card and (problem := first_problem(card.data, source)):
        found, expected = f"and {values['trainer_model']} cannot train on it: {problem}", ""
    findings = [("trainer_data_source", found, expected)] if found else []
    return str(source), _problems(findings, values, hosts)


def _problems(
    findings: Iterable[_Finding],
    values: Mapping[str, Any],
    hosts: Sequence[str],
    places: Mapping[str, str] | None = None,
) -> list[InventoryProblem]:
    """Return a problem for each finding (variable, what is wrong, what is expected).

    `places` is {variable: where the user set it}, for variables that are set elsewhere, such as
    trainer_programs.mnist.entry.
    """
    found = []
    for name, what, expected in findings:
        place = (places or {}).get(name, name)
        problem = f"{place} is {as_given(values[name])}, {what}" + (
            f"; expected {expected}" if expected else ""
        )
        found.append(InventoryProblem(problem, place, tuple(hosts)))
    return found


def controller_path(text: str) -> Path:
    """Return `text` as an absolute path; a relative one is relative to the current directory.

    This is the folder in which the user typed `ansible-playbook`. "~" is expanded, links are not followed.
    """
    # resolve() would follow links, and Path.expanduser() would raise for an unknown user.
    return Path(os.path.abspath(os.path.expanduser(text)))  # noqa: PTH100, PTH111


def _is_accessible(path: Path, kind: Callable[[Path], bool] = Path.exists) -> bool:
    """Return whether `path` exists and is of this kind; False if it is invalid or may not be accessed.

    `kind` is a method of Path, such as Path.is_dir.
    """
    try:
        return kind(path)
    except OSError:
        return False


def _program_findings(source: Path, entry: str, variable: str) -> Iterator[_Finding]:
    """Yield (variable, what is wrong, what is expected) for each reason why a program cannot be carried.

    `entry` is the file to run, relative to the folder `source`; `variable` is the place where the user set
    the path. Raises ValueError or OSError if one of its files is invalid or cannot be read.
    """
    if not source.exists():
        expected = "a Python file, or a folder with one, on this machine"
        yield "trainer_program", f"and there is no {source}", expected
        return
    if environment := _virtual_environment(source):
        expected = "the program alone: move the environment out of the folder, or begin its name with a dot"
        yield "trainer_program", f"which holds the virtual environment {environment}", expected
        return
    sizes = {name: path.stat().st_size for name, path in content_files(source).items()}
    if entry and entry not in sizes:
        left_out = (source / entry).is_file()
        found = "which is left out" if left_out else f"and there is no file {source / entry}"
        expected = f"a file of the folder {variable}; what begins with a dot is left out"
        yield "trainer_program_entry", found, expected
    megabytes = sum(sizes.values()) / 1e6
    if megabytes > PROGRAM_MEGABYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        expected = f"{PROGRAM_MEGABYTES} MB at most: trainer_data_source carries data"
        found = f"which holds {megabytes:.0f} MB (the largest file is {largest})"
        yield "trainer_program", found, expected


def _virtual_environment(source: Path) -> str:
    """Return the path of the first virtual environment at or below the folder; "" if there is none.

    Hidden folders are not searched.
    """
    for parent, folders, names in os.walk(source):
        if "pyvenv.cfg" in names:  # only a folder of a virtual environment holds it
            return parent
        folders[:] = [name for name in folders if not name.startswith(".")]
    return ""
