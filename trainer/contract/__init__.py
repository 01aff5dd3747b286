"""What the hosts and the controller agree on: plan, settings, records, exit codes, progress.

Both import this room, so it imports only the standard library and `host`. Its modules import each other by
relative names, because `psfleet_records` loads the package under another name in a user's program.
"""
