"""The old spelling of `python -m psfleet.report`, for the controller alone."""

import runpy

runpy.run_module("psfleet.report", run_name="__main__", alter_sys=True)
