"""`python -m psfleet.evidence FOLDER`: judge a run's folder, say it, and write verdict.json there."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from psfleet.evidence.manifest import FILE_NAME as MANIFEST
from psfleet.evidence.manifest import pack
from psfleet.evidence.reading import read_run, read_settings
from psfleet.evidence.verdict import CANNOT_TELL, EXIT_CODES, judge_run
from psfleet.evidence.verdict_lines import as_lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the folder; return 0 for a run that is proven or completed, 1 for one that is not, else 2."""
    parser = argparse.ArgumentParser(
        prog="python -m psfleet.evidence",
        description="Say from a run's records alone whether its workers trained one model together, and"
        " whether it converged. Writes verdict.json into the folder.",
        epilog="Exit code: 0 proven or, for a program of one's own, completed; 1 not proven, 2 cannot tell.",
    )
    parser.add_argument("folder", type=Path, help="a run's folder, with plan.json, settings.json and events/")
    parser.add_argument(
        "--pack",
        type=Path,
        metavar="FILE",
        help="also pack what the verdict rests on into FILE, a new .tar.gz that anybody can verify",
    )
    parser.add_argument("--json", action="store_true", help="print verdict.json instead of the report")
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    try:
        settings = read_settings(folder)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CODES[CANNOT_TELL]
    verdict = judge_run(read_run(folder), settings)
    if options.json:
        sys.stdout.write(json.dumps(verdict.as_json(), indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line, _ in as_lines(verdict, folder)))
    if folder.is_dir():
        try:
            verdict.write(folder)
        except OSError as error:
            sys.stderr.write(f"verdict.json was not written: {error}\n")
    if options.pack is not None:
        return max(verdict.exit_code, _pack(folder, options.pack))
    return verdict.exit_code


def _pack(folder: Path, target: Path) -> int:
    if not (folder / MANIFEST).exists():
        sys.stderr.write(
            f"{folder} has no {MANIFEST}, which train.yml and stop.yml write when they collect a run:"
            " without it nobody could tell whether the files are those that were collected\n"
        )
        return EXIT_CODES[CANNOT_TELL]
    try:
        names = pack(folder, target)
    except OSError as error:
        why = f"was not written: {error.strerror or error}"
        if isinstance(error, FileExistsError):
            why = "is there already: remove it, or name another file"
        sys.stderr.write(f"{target} {why}\n")
        return EXIT_CODES[CANNOT_TELL]
    sys.stderr.write(f"packed {len(names)} files into {target}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
