"""The old spelling of `python -m psfleet.evidence`, for the controller alone."""

import runpy

runpy.run_module("psfleet.evidence", run_name="__main__", alter_sys=True)
