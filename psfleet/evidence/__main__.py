"""`python -m psfleet.evidence FOLDER`: judges a run's folder, prints the verdict and writes verdict.json.

The verdict on a packed run, a .tar.gz, is only printed.
"""

import argparse
import errno
import json
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from psfleet.evidence.packed_run import unpacked_run
from psfleet.evidence.reading import read_run, read_settings
from psfleet.evidence.run_manifest import FILE_NAME as MANIFEST
from psfleet.evidence.run_manifest import pack
from psfleet.evidence.verdict import CANNOT_TELL, EXIT_CODES, Verdict, judge_run
from psfleet.evidence.verdict_lines import as_lines
from trainer.contract.progress import printable

# Codes of sysexits.h, for errors; the codes 0, 1 and 2 are verdicts.
USAGE, NO_INPUT, INTERNAL, CANNOT_WRITE, IO_ERROR, NO_PERMISSION = 64, 66, 70, 73, 74, 77


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print the usage and `message` to stderr, and exit with 64; argparse's own code 2 is a verdict."""
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the run that the arguments name, print the verdict, and return the exit code.

    Without `arguments`, those of the command line count. A folder also gets verdict.json. The exit code is 0,
    1 or 2 by the verdict; 64 to 77 (sysexits.h) if there is no verdict or --pack failed, and stderr says why.
    Invalid thresholds give 2 ("cannot tell"). Raises SystemExit for unknown options and for --help.
    """
    parser = _Parser(
        prog="python -m psfleet.evidence",
        description="Judge from a run's records alone whether its workers trained one model together, and"
        " whether it converged. Writes verdict.json into the folder.",
        epilog="Exit code: 0 proven or, for a user's program, completed; 1 not proven, 2 cannot tell; "
        "64 to 77 where there is no verdict, with the reason.",
    )
    parser.add_argument(
        "folder", help="a run's folder, with plan.json, settings.json and events/, or a packed run"
    )
    parser.add_argument(
        "--pack",
        type=Path,
        metavar="FILE",
        help="also pack what the verdict rests on into FILE, a new .tar.gz that anybody can verify",
    )
    parser.add_argument("--json", action="store_true", help="print verdict.json instead of the report")
    options = parser.parse_args(arguments)
    try:
        if options.folder and Path(options.folder).is_file():
            return _judge_packed(options)
        return _judge(options)
    except PermissionError as error:
        code, why = (
            NO_PERMISSION,
            f"{error.filename} cannot be read: run this as its owner, or ask for a copy",
        )
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            _complain(f"{options.folder[:80]!r} is no path: {error.strerror}")
            return NO_INPUT
        code, why = IO_ERROR, f"{error.filename or 'standard output'}: {error.strerror or error}"
    except (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"[:300]
        code, why = (
            INTERNAL,
            f"psfleet did not foresee something in it ({what}): please report it with the folder",
        )
    _complain(f"{options.folder}: no verdict. {why}")
    return code


def _judge_packed(options: argparse.Namespace) -> int:
    if options.pack is not None:
        _complain(f"{options.folder} is packed already: --pack is for a folder")
        return USAGE
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(unpacked_run(Path(options.folder)))
        except ValueError as error:
            _complain(f"{options.folder}: {error}. Expected a file that --pack wrote")
            return NO_INPUT
        verdict = _verdict_on(folder)
    if verdict is None:
        return EXIT_CODES[CANNOT_TELL]
    _print(verdict, Path(options.folder), as_json=options.json)
    return verdict.exit_code


def _judge(options: argparse.Namespace) -> int:
    folder = Path(options.folder)
    if problem := _no_folder(options.folder):
        _complain(problem)
        return NO_INPUT
    if options.pack is not None and options.pack.resolve().is_relative_to(folder.resolve()):
        _complain(f"--pack {options.pack} is in the folder that is to be packed: name a file outside of it")
        return USAGE
    verdict = _verdict_on(folder)
    if verdict is None:
        return EXIT_CODES[CANNOT_TELL]
    _print(verdict, folder, as_json=options.json)
    try:
        verdict.write(folder)
    except OSError as error:
        _complain(f"verdict.json was not written: {error}")
        if options.pack is not None:  # an older verdict.json would be packed
            return CANNOT_WRITE
    if options.pack is not None:
        return _pack(folder, options.pack) or verdict.exit_code
    return verdict.exit_code


def _verdict_on(folder: Path) -> Verdict | None:
    """Return the verdict on the run in `folder`.

    If the thresholds in settings.json are invalid, print why to stderr and return None. Raises OSError.
    """
    try:
        settings = read_settings(folder)
    except ValueError as error:
        _complain(str(error))
        return None
    return judge_run(read_run(folder), settings)


def _no_folder(given: str) -> str:
    """Return why the path `given` is not a run's folder, or "" if it may be one.

    It may be one if it has plan.json, settings.json, manifest.json or events; "" is not. Raises
    PermissionError.
    """
    folder = Path(given)
    if not given or not folder.is_dir():
        return f"{given!r} is no folder. A run's folder is runs/ID, where train.yml puts it"
    if not any((folder / name).exists() for name in ("plan.json", "events", "settings.json", MANIFEST)):
        inside = sorted(path.parent.name for path in folder.glob("*/plan.json"))[:5]
        there = f": name one of those in it ({', '.join(inside)})" if inside else ""
        return f"{given} is not the folder of a run, which has a plan.json{there}"
    return ""


def _print(verdict: Verdict, folder: Path, *, as_json: bool) -> None:
    if as_json:
        text = json.dumps(verdict.as_json(), indent=2) + "\n"
    else:
        terminal = sys.stdout is not None and sys.stdout.isatty()
        columns = shutil.get_terminal_size().columns if terminal else 0
        text = "".join(f"{line}\n" for line, _ in as_lines(verdict, folder, columns))
    if sys.stdout is None:
        raise OSError(None, "it is closed")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        # Otherwise Python would try again to write when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _complain(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"{printable(text)}\n")


def _pack(folder: Path, target: Path) -> int:
    """Pack the run's folder into the new file `target`, a .tar.gz, and print the result to stderr.

    Return 0; 66 if the folder has no manifest.json; 73 if `target` exists or cannot be written.
    """
    if not (folder / MANIFEST).exists():
        _complain(
            f"{folder} has no {MANIFEST}, which train.yml and stop.yml write when they collect a run:"
            " without it the files cannot be compared with what was collected"
        )
        return NO_INPUT
    try:
        names = pack(folder, target)
    except OSError as error:
        why = f"was not written: {error.strerror or error}"
        if isinstance(error, FileExistsError):
            why = "is there already: remove it, or name another file"
        _complain(f"{target} {why}")
        return CANNOT_WRITE
    _complain(f"packed {len(names)} files into {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
