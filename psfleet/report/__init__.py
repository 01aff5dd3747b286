"""The report of a run: `report.html`, one file that needs nothing else, and `loss.png`.

From a run's folder and its verdict alone, as `psfleet.evidence` reads them; no host is asked. It needs
matplotlib and jinja2, which only the controller has. `python -m psfleet.report FOLDER` writes both files.
"""

REPORT, LOSS_PICTURE = "report.html", "loss.png"
# What to tell who lacks them.
NEEDS = (
    "the report needs matplotlib and jinja2: install what requirements/controller.txt names, as `make setup`"
    " does. The verdict needs neither: python -m psfleet.evidence FOLDER"
)
