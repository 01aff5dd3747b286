"""Train and judge the corpus, and print a table of its runs (`make adversaries`).

The exit code is 1 where a run is judged otherwise than it must be.
"""

import os
import sys
import tempfile
from pathlib import Path

from tests.psfleet.evidence.adversaries.corpus import CASES, Verdicts
from tests.psfleet.evidence.adversaries.real_runs import RealRuns
from tests.psfleet.evidence.adversaries.table import as_markdown

if __name__ == "__main__":
    # What TensorFlow tells of the machine is no part of the table.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with tempfile.TemporaryDirectory() as folder:
        verdicts = Verdicts(RealRuns(Path(folder)), Path(folder) / "copies")
        sys.stdout.write(as_markdown(verdicts))
    sys.exit(not all(case.is_judged_rightly(verdicts[case.name]) for case in CASES))
