"""The replication engines. Each engine has a graph and a session: asynchronous, synchronous or in-graph.

This room imports `model` and the floors below it.
"""
