"""One process on its host: its flags, its place in the cluster, systemd, its GPUs, and how it ends early.

It imports `contract` and `host`; TensorFlow only late, where a function needs it.
"""
