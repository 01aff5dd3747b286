"""Hints for programs that look for files beside their script, or write files there.

A program runs in the run's directory, because what it writes there stays with the run and is collected. Its
own folder is read-only. So a script that was always started in its own folder does not find files there.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from trainer.contract.run_program import RunProgram

_WHERE = "docs/programs.md, working directory"
_MISSING = re.compile(
    r"No such file|not found|does not exist|(?<!Module)NotFoundError|cannot open|unable to open", re.I
)
# Python's words for a missing file with a relative path.
_MISSING_RELATIVE = re.compile(r"No such file or directory: b?['\"](?!/)([^'\"]+)['\"]")
# What logging.config.fileConfig says of a missing file in Python 3.10 and older releases of Python 3.11.
_MISSING_CONFIGURATION = re.compile(r"KeyError: 'formatters'")
_READ_ONLY = "Read-only file system"
_PATH = re.compile(r"[^\s'\"`;:=(){}\[\],]+")


def file_hint(reason: str, program: RunProgram) -> str:
    """Return the hint for a missing file, or for a write to a read-only folder; "" for any other failure.

    `reason` is the reason of the program's failure, in words. A missing file counts if it is beside the
    script or has a relative path.
    """
    script = Path(program.file)
    if _READ_ONLY in reason:
        return (
            "a program may write only in its working directory and in /tmp; its folder is read-only: use a "
            f"relative path such as output/, which is collected: {_WHERE}"
        )
    if _MISSING.search(reason) and (path := next(_beside(reason, program), "")):
        return (
            f"it is in the program's folder, and the program runs in the run's directory: use "
            f"os.path.join(os.path.dirname(__file__), {path!r}): {_WHERE}"
        )
    if not (_MISSING_RELATIVE.search(reason) or _MISSING_CONFIGURATION.search(reason)):
        return ""
    hint = "a relative path begins in the run's directory, where the program runs"
    if _MISSING_CONFIGURATION.search(reason):
        beside = "os.path.join(os.path.dirname(__file__), ..)"
        hint = f"logging.config.fileConfig found no file: {hint}; use {beside}"
    if {path.name for path in script.parent.iterdir()} <= {script.name, "__pycache__"}:
        hint += (
            f"; deploy.yml carried {script.name} alone: for files beside it, trainer_program is its folder, "
            f"with trainer_program_entry: {script.name}"
        )
    return f"{hint}: {_WHERE}"


def _beside(reason: str, program: RunProgram) -> Iterator[str]:
    """Yield each path in `reason`, why the program failed, that exists in the program's folder.

    The paths are relative to the script's folder. Example: "data/words.txt"
    """
    script = Path(program.file)
    # Python puts the name of a missing file in quotes. Elsewhere a word counts as a path only if it has "."
    # or "/".
    words = [text for text in _PATH.findall(reason) if "." in text or "/" in text]
    for text in [*_MISSING_RELATIVE.findall(reason), *words]:
        path = os.path.normpath(text.rstrip("."))
        if path.startswith(("/", "..")) or path == ".":
            continue
        for folder in (script.parent, program.folder):
            if (folder / path).exists():
                yield os.path.relpath(folder / path, script.parent)
