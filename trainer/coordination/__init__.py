"""How the tasks of a run find, await and count each other, through variables on the ps: the ledger.

It imports `process` and what is below it.
"""
