"""Writes the report of a run: `report.html`, one file that needs no other file, and `loss.png`.

It needs a run's folder and its verdict, as `psfleet.evidence` reads them, and no host. It also needs
matplotlib and jinja2, which only the controller has. `python -m psfleet.report FOLDER` writes both files.
"""

REPORT, LOSS_PICTURE = "report.html", "loss.png"
# The message for users without these packages.
NEEDS = (
    "the report needs matplotlib and jinja2: install what requirements/controller.txt names, as `make setup`"
    " does. The verdict needs neither: python -m psfleet.evidence FOLDER"
)
