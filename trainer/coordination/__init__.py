"""Coordination of a run's tasks, which find, await and count each other by variables on the ps: the ledger.

This room imports `process` and the floors below it.
"""
