"""What is wrong, of the many lines that an error has."""

import re
from collections.abc import Iterable
from itertools import islice

_MOST = 6
# Of TensorFlow's: that it is one, which node it was, where that was defined, and what to try.
_BESIDE = re.compile(r'\s*File "|Detected at node |Node: |\s*\[\[\{\{node |Hint: |\S* ?execution error')


def telling(lines: Iterable[str]) -> list[str]:
    """Return the first lines that say what is wrong, six at most."""
    return list(
        islice((line.rstrip() for line in lines if line.strip(" =\t") and not _BESIDE.match(line)), _MOST)
    )
