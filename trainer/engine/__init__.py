"""How a step is made: a graph and a session for each replication, asynchronous, synchronous and in-graph.

It imports `model` and what is below it.
"""
