"""Reads the inventory: returns the cluster plan and each task's settings, or every problem with its file."""
