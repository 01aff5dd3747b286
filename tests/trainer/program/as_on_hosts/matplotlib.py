"""Hosts have none. Keras imports it where there is one: a fourth of what a process needs to begin."""

raise ImportError("as on a host")
