"""Hints that follow the reason of a failed program: what psfleet does otherwise than the program expects."""

import re
from collections.abc import Sequence

from trainer.contract.exit_codes import USAGE
from trainer.contract.run_program import RunProgram
from trainer.program.file_hints import file_hint
from trainer.program.fitting_packages import installed_tensorflow
from trainer.program.remedies import remedy

FLAGS = ("job_name", "task_index", "ps_hosts", "worker_hosts")
_THE_FLAGS = "--job_name, --task_index, --ps_hosts and --worker_hosts"
_WHERE = "docs/programs.md, other flags"
# Whether the program gets the four flags -> the hint about flags.
_OF_FLAGS = {
    True: f"psfleet passes {_THE_FLAGS}; for other names set trainer_program_flags: false and, for example, "
    f'trainer_program_arguments: ["--job={{job_name}}", "--workers={{worker_hosts}}"]: {_WHERE}',
    False: "psfleet passes trainer_program_arguments alone, with placeholders such as {job_name} and "
    f"{{worker_hosts}}; trainer_program_flags: true adds {_THE_FLAGS}: {_WHERE}",
}
# Exceptions of programs that read the command line themselves, and name the flag that they refuse.
_REFUSED_FLAG = re.compile(
    rf"--(?:{'|'.join(FLAGS)})\b|command line flag '|option --?\S+ (?:not recognized|requires argument)"
)
# Errors of calls that the sandbox or the fence refuses; each has its row in docs/programs.md.
_REFUSED_CALL = re.compile(
    r"\[Errno 1\] Operation not permitted|\[Errno 97\] Address family|Temporary failure in name resolution"
    r"|No such file or directory: '(?:/var)?/run/|No such file or directory: '/dev/log'"
)


def with_hint(code: int, reason: str, program: RunProgram, lines: Sequence[str] = ()) -> str:
    """Return `reason`, why the program failed, and after it, on a line of its own, a hint in brackets.

    Without a fitting hint, return `reason` alone. `code` is the exit code of the program's task; `lines` are
    the lines of Python in the traceback, the innermost last.
    """
    if code == USAGE or _REFUSED_FLAG.search(reason):
        return f"{reason}\n({_OF_FLAGS[program.flags]})"
    tensorflow = installed_tensorflow()
    hint = remedy(reason, tensorflow=tensorflow, tensorflow1=program.tensorflow1, lines=lines)
    hint = hint or file_hint(reason, program)
    if not hint and _REFUSED_CALL.search(reason):
        hint = "the sandbox of a task refuses some calls: docs/programs.md, What a task may not do"
    return f"{reason}\n({hint})" if hint else reason
