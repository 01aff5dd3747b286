"""Usage errors of programs: the words with which a program refuses its command line.

argparse, optparse, click, typer, docopt, fire, getopt and absl each have words of their own, and many scripts
print a line "usage: ..". The exit code is no sign: argparse's 2 and absl's 1 mean something else in other
programs.
"""

import re

from trainer.host.error_lines import is_of_a_library

_USAGE = re.compile(r"usage:", re.IGNORECASE)
# The line near a usage that says what is wrong, as printed by: argparse and optparse; click and fire; typer.
_BESIDE_USAGE = re.compile(r"\S.*: error: \S|error: \S|\u2502 ", re.IGNORECASE)
# The line that says what is wrong where no usage is printed: by absl, and by Python's getopt.
_ALONE = re.compile(
    r"FATAL Flags parsing error:"
    r"|option -\S+ (?:not recognized|requires argument|must not have an argument|not a unique prefix)"
)
# fire prints its error before the usage; the others print their errors after it.
_LINES_BEFORE = 3
_FRAME = " \u2502"
_MOST_LINES = 3
# A script may say what is wrong before its usage.
_FIRST_LINES = 3
# absl adds this advice to each error.
_ADVICE = "Pass --helpshort or --helpfull"
# TensorFlow's log line of a server: a program that starts one has accepted its command line.
_SERVED = "Started server with target"


def usage_error_in(text: str) -> str:
    """Return the words of the last usage error in a program's output, in at most three lines; "" if none.

    Also "" if the program started a server: then it has accepted its command line. An example, of the lines
    "usage: a.py [-h]" and "a.py: error: unrecognized arguments: --x": the second.
    """
    if _SERVED in text:
        return ""
    lines = _lines(text)
    usages = [number for number, line in enumerate(lines) if _USAGE.match(line)]
    if usages:
        around = lines[max(usages[-1] - _LINES_BEFORE, 0) :]
        words = [line.strip(_FRAME) for line in around if _BESIDE_USAGE.match(line)] or lines[usages[-1] :]
    else:
        alone = [number for number, line in enumerate(lines) if _ALONE.match(line)]
        words = lines[alone[-1] :] if alone else []
    return "\n".join(words if len(words) <= _MOST_LINES else [*words[:2], words[-1]])


def usage_alone_in(text: str, script: str) -> str:
    """Return the usage that a script printed in its first three lines; "" if it printed none.

    `script` is the name of the script's file: a usage without it is another program's, and gives "". This is
    for a script that ended with exit code 0.
    """
    usage = usage_error_in(text)
    first = any(_USAGE.match(line) for line in _lines(text)[:_FIRST_LINES])
    return usage if first and script in usage else ""


def _lines(text: str) -> list[str]:
    printed = (line.strip() for line in text.splitlines() if not is_of_a_library(line))
    return [line for line in printed if line and not line.startswith(_ADVICE)]
