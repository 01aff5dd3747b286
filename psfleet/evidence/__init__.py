"""Judges a run's folder: whether the workers trained one model together, and whether it converged.

Pure Python that needs only the records: neither TensorFlow nor Ansible nor the hosts. docs/verdict.md
explains each check; `python -m psfleet.evidence FOLDER` runs them all.
"""

import sys

# This precedes all code that an older Python cannot parse, because others may judge a run with one. 69 means
# that something needed is unavailable.
if sys.version_info < (3, 11):
    sys.stderr.write("psfleet needs Python 3.11 or newer, and this is %s\n" % sys.version.split()[0])  # noqa: UP031
    sys.exit(69)
