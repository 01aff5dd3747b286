"""Injects faults into real runs on container hosts: those that a run survives, or ends from with a reason.

`make faults` runs every row in a random order, and writes a table. The model is etcd's functional
tester: health before each injection, proof that the fault bit, a look at what is left.
"""
