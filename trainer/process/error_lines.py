"""What is wrong, of the many lines that an error has."""

import re
from collections.abc import Iterable

# What an error says first, and what it ends with where it shows a large value between.
_FIRST, _LAST = 3, 2
# Of TensorFlow's: that it is one, which node it was, where that was defined, and what to try.
_BESIDE = re.compile(r'\s*File "|Detected at node |Node: |\s*\[\[\{\{node |Hint: |\S* ?execution error')


def telling(lines: Iterable[str]) -> list[str]:
    """Return the first lines that say what is wrong, and the last ones; six at most."""
    said = [line.rstrip() for line in lines if line.strip(" =\t") and not _BESIDE.match(line)]
    between = said[_FIRST:-_LAST]
    return said if len(between) < 2 else [*said[:_FIRST], "...", *said[-_LAST:]]
