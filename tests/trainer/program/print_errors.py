"""Prints the exception of each program, run as a fork of this process, which has loaded TensorFlow.

usage: print_errors.py < PROGRAMS > ERRORS, two JSON lists of texts; "" for a program that raises nothing.
"""

import json
import os
import sys
import tempfile
import traceback

import tensorflow  # noqa: F401  # which all programs then have


def main() -> None:
    """Run all programs, one after another."""
    json.dump([error_of(program) for program in json.load(sys.stdin)], sys.stdout)


def error_of(program: str) -> str:
    """Return what Python prints of the program's uncaught exception, without the traceback."""
    reader, writer = os.pipe()
    if not os.fork():
        said = ""
        os.chdir(tempfile.mkdtemp())
        os.dup2(2, 1)
        try:
            exec(compile(program, "main.py", "exec"), {"__name__": "__main__"})
        except BaseException as error:
            said = "".join(traceback.format_exception_only(type(error), error))
        os.write(writer, said.encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as file:
        said = file.read()
    os.wait()
    return said.strip()


if __name__ == "__main__":
    main()
