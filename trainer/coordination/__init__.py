"""Coordination: the tasks of a run find, await and count each other by variables on the ps, the ledger.

This room imports `process` and the floors below it.
"""
