"""The replication engines: a graph and a session each for asynchronous, synchronous and in-graph training.

This room imports `model` and the floors below it.
"""
