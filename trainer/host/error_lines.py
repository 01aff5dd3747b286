"""The words of an error, picked from all the lines that TensorFlow and Python print with it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

MOST_LINES, LONGEST_LINE, MOST_LOGGED = 5, 300, 20

_TRACEBACK = "Traceback (most recent call last):"
_IGNORED = "Exception ignored in"
# Lines that TensorFlow's runtime prints in normal operation, and lines that Python adds to a warning.
_OF_A_LIBRARY = re.compile(
    r"[IW]\d{4} [\d:.]+ |\d{4}-\d\d-\d\d \S+: [IW] |To enable the following instructions: "
    r"|WARNING: All log messages before absl|WARNING:tensorflow:|Instructions for updating:"
    r"|non-resource variables are not supported|warnings\.warn\("
    r"|\*\*\* Check failure stack trace|\s*@ +0x|\s*File \"[^\"]+\", line |\s*\[\[\{\{node "
)
# A line that ends an error's message: where its node was created, or with which other nodes it is placed. The
# second pattern finds log lines after the message.
_END = re.compile(r"Original stack trace for |Colocation Debug Info|During handling of the above")
_BEHIND = re.compile(rf"{_IGNORED}|[IWEF]\d{{4}} [\d:.]+ ")
# Lines within a message that say no reason: headings, nodes, where nodes were defined, hints, and tasks.
_BESIDE = re.compile(
    r"Traceback \(most recent|Detected at node |Node: |\[\[\{\{node |Hint: |\d+ root error\(s\) found"
    r"|\d+ (?:successful operations|derived errors ignored)|(?:[A-Z_]+: )?From /job:\S+:$"
    r"|:UNKNOWN:|Input Source operations|Errors may have originated|Function call stack|[\^~]+$"
    r"|\S* ?execution error:?$"
)
_FRAME, _DUMP = re.compile(r'\s*File "'), re.compile(r"\s*\w+ \{$")
_ASIDE = re.compile(
    r"\{\{function_node \S*\}\}\s*|\s*\[Op:\S+\](?: name:.*)?|\s*\[type\.googleapis\.com/\S+\]"
    r"|^\s*\(\d+\) (?=[A-Z_]+: )|^tensorflow\.python\.framework\.errors_impl\."
)
# The first line of an error, if it has only the class.
_CLASS = re.compile(
    r"((?:\w+: )*[\w.]*\w(?:Error|Exception)): *(?:[\w ]*execution error:|From /job:\S+:|\d+ root .*)?$"
)
_RECENT = "Recent warning and error logs:"
_STATUS = re.compile(r"(?:status|\.cc:\d+ ): ([A-Z_]+): *(.+)")
# Errors that follow from another error; TensorFlow's log names that other error.
_CONSEQUENCES = ("ABORTED", "CANCELLED", "OUT_OF_RANGE")
_CONSEQUENCE = re.compile(r"is closed and has insufficient elements|(?:ABORTED|CANCELLED): ")
_NO_MEMORY = re.compile(
    r"^MemoryError|OOM when allocating|std::bad_alloc|CUDA_ERROR_OUT_OF_MEMORY|Cannot allocate memory"
    r"|[Ff]ailed to allocate memory|[Uu]nable to allocate [\d.]+ .iB",
    re.MULTILINE,
)
_ABORTED = "tensorflow.python.framework.errors_impl.AbortedError"
_REFUSED = re.compile(r"The same \w+ \(\w+\) request was received twice")


def in_short(text: str) -> str:
    """Return the words of an error in at most five lines, the error itself first; "" for an empty text.

    Stack frames, dumps of graphs and log lines of libraries are left out, and a line of more than 300
    characters is cut. Applied to its own result, the function returns it unchanged.
    """
    message, log = _parts(text)
    words = list(_own_words(message))
    known = "\n".join(words)
    statuses = _STATUS.findall(log)[:MOST_LOGGED]
    others = [f"{code}: {what}" for code, what in statuses if what not in known]
    causes = [each for each in dict.fromkeys(others) if not each.startswith(_CONSEQUENCES)]
    first = [line for line in words if not _CONSEQUENCE.search(line)]
    after = [line for line in words if _CONSEQUENCE.search(line)]
    return "\n".join(map(_cut, _within([*first, *causes, *after])))


def error_in_short(error: BaseException) -> str:
    """Return "class: message" of an exception, shortened to five lines by `in_short`."""
    return in_short("".join(traceback.format_exception_only(type(error), error)))


def exception_in(text: str) -> str:
    """Return the last exception with a traceback in a text, without the traceback: "class: message".

    The message is not shortened, and may have several lines. Return "" if the text has no traceback.
    """
    _, message = _last_traceback(text)
    return "\n".join(takewhile(lambda line: not _BEHIND.match(line), message))


def source_lines_in(text: str) -> tuple[str, ...]:
    """Return the lines of source code in the last traceback in a text, in its order, the innermost last.

    Return () if there is no traceback.
    """
    frames, _ = _last_traceback(text)
    return tuple(line.strip() for line in frames if not (_FRAME.match(line) or _BESIDE.match(line.strip())))


def is_out_of_memory(text: str) -> bool:
    """Return whether the text of an error says that its host or a GPU had no memory left."""
    return bool(_NO_MEMORY.search(text))


def first_cause_in(text: str) -> str:
    """Return what `exception_in` returns, or the refusal by a task from which that exception follows.

    In a synchronous program a refusal stops the thread that fills the queue of tokens, and the program ends
    because the queue is closed. Then return "<class>: The same .. request was received twice".
    """
    exception = exception_in(text)
    if _CONSEQUENCE.search(exception) and (refused := _REFUSED.search(text)):
        return f"{_ABORTED}: {refused[0]}"
    return exception


def last_words(lines: Sequence[str]) -> str:
    """Return the last five lines that a task printed, joined by newlines; "" if there are none.

    Empty lines and lines of libraries do not count. A line of more than 300 characters is cut.
    """
    return "\n".join(
        [_cut(line) for line in lines if line.strip() and not is_of_a_library(line)][-MOST_LINES:]
    )


def is_of_a_library(line: str) -> bool:
    """Return True for a line that TensorFlow, Python or absl print in normal operation, False for others.

    Lines of a stack trace count as such lines. The empty line does not.
    """
    return bool(_OF_A_LIBRARY.match(line))


def _last_traceback(text: str) -> tuple[list[str], list[str]]:
    """Return (the lines about frames, the lines after them) of the last traceback; ([], []) without one."""
    lines = text.splitlines()
    starts = [
        number
        for number, line in enumerate(lines)
        if line == _TRACEBACK and not (number and lines[number - 1].startswith(_IGNORED))
    ]
    after = lines[starts[-1] + 1 :] if starts else []
    frames = next((number for number, line in enumerate(after) if line[:1] not in {" ", ""}), len(after))
    return after[:frames], after[frames:]


def _parts(text: str) -> tuple[list[str], str]:
    """Return (the lines of an error, the log that TensorFlow appended to them or "")."""
    lines = takewhile(lambda line: not _END.match(line), text.splitlines())
    message, _, log = "\n".join(line for line in lines if not is_of_a_library(line)).partition(_RECENT)
    return message.splitlines(), log


def _own_words(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of an error that say what is wrong, each once and cleaned of TensorFlow's additions.

    If the first line has only the class of the error, the class is put before the next line.
    """
    known: set[str] = set()
    before = ""
    for line in _without_dumps(lines):
        # A host may print lines of any length, so the patterns see only a part of a very long line.
        cleaned = _ASIDE.sub("", _cut(line.rstrip(), 4000))
        if named := _CLASS.match(cleaned):
            before = f"{named[1]}: "
        elif cleaned.strip(" =\t.") and not _BESIDE.match(cleaned.strip()) and cleaned.strip() not in known:
            yield before + (cleaned.strip() if before else cleaned)
            known.add(cleaned.strip())
            before = ""
    if before:
        yield before.rstrip(": ")


def _without_dumps(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines without stack frames, the frames' source lines, and dumps of graph nodes."""
    depth, in_frame = 0, False
    for line in lines:
        of_frame = in_frame and line.startswith("    ")
        in_frame = bool(_FRAME.match(line))
        if _DUMP.match(line):
            depth += 1
        elif depth:
            depth -= line.strip() == "}"
        elif not (in_frame or of_frame):
            yield line


def _within(lines: list[str]) -> list[str]:
    """Return at most five lines: all, or the first two, "..." and the last two."""
    return lines if len(lines) <= MOST_LINES else [*lines[:2], "...", *lines[-2:]]


def _cut(line: str, most: int = LONGEST_LINE) -> str:
    return line if len(line) <= most else f"{line[: most * 2 // 3]} ... {line[10 - most // 3 :]}"
