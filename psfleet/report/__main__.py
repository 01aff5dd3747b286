"""`python -m psfleet.report FOLDER`: judges a run's folder, and writes report.html and loss.png there."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from psfleet.evidence.reading import read_run, read_settings
from psfleet.evidence.verdict import judge_run
from psfleet.report import NEEDS

CANNOT_WRITE, USAGE = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the run's folder, write the report into it, print its path, and return the exit code.

    Without `arguments`, those of the command line count. Return 0; 1 if the report cannot be drawn or
    written; 2 if there is no such folder, or if its thresholds are invalid.
    """
    parser = argparse.ArgumentParser(
        prog="python -m psfleet.report",
        description="Draw a run into its folder: report.html, a file that needs nothing else, and loss.png.",
    )
    parser.add_argument("folder", type=Path, help="a run's folder, with plan.json, settings.json and events/")
    folder: Path = parser.parse_args(arguments).folder
    if not folder.is_dir():
        sys.stderr.write(f"{folder} is not a folder; expected that of a run, such as runs/ID\n")
        return USAGE
    try:
        from psfleet.report.page import write_report
    except ImportError as error:
        sys.stderr.write(f"{error}: {NEEDS}\n")
        return CANNOT_WRITE
    try:
        settings = read_settings(folder)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return USAGE
    run = read_run(folder)
    try:
        page = write_report(run, judge_run(run, settings))
    except OSError as error:
        sys.stderr.write(f"the report was not written: {error}\n")
        return CANNOT_WRITE
    sys.stdout.write(f"{page}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
