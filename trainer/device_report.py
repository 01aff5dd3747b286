"""The old spelling of `python -m psfleet.report.devices`, for the controller alone."""

import runpy

runpy.run_module("psfleet.report.devices", run_name="__main__", alter_sys=True)
