"""Models and their data, checkpoints, fingerprints, and evaluation.

This room imports `coordination` and the floors below it.
"""
