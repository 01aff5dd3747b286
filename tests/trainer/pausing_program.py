"""The trainer with a pause after each call for steps, for runs that train until a test has seen enough.

Such a run would take steps as fast as it can while the test waits for something else, and so take cores from
other tests.
"""

import os
import sys
import time

from trainer import __main__ as program
from trainer.task.call_sizes import CallSizes

_SECONDS = 0.02
_adapt = CallSizes.adapt


def _adapt_and_pause(sizes: CallSizes, seconds: float, steps: int) -> None:
    _adapt(sizes, seconds, steps)
    time.sleep(_SECONDS)


CallSizes.adapt = _adapt_and_pause  # type: ignore[method-assign, assignment]

if __name__ == "__main__":
    os._exit(program.main(sys.argv[1:]))
