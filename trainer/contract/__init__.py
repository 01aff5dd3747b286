"""What the program on the hosts and the controller agree on: plan, settings, records, exit codes, progress.

Both read it, so it imports the standard library and `host` alone. Its modules import each other by relative
names: `psfleet_records` loads the package in programs of one's own, under a name that they do not have.
"""
