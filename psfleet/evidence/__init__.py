"""From a run's folder to a verdict: whether the workers trained one model together, and it converged.

Pure Python over the records alone: it needs neither TensorFlow nor Ansible nor the hosts. docs/verdict.md
says what each check means; `python -m psfleet.evidence FOLDER` runs them.
"""

import sys

# Before anything that an older Python cannot read. A stranger may have one; 69: what it needs is not there.
if sys.version_info < (3, 11):
    sys.stderr.write("psfleet needs Python 3.11 or newer, and this is %s\n" % sys.version.split()[0])  # noqa: UP031
    sys.exit(69)
