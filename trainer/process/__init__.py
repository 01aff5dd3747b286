"""One process on its host: its flags, its place in the cluster, systemd, its GPUs, and its early exits.

This room imports `contract` and `host`, and imports TensorFlow only in the functions that need it.
"""
