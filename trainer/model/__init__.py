"""What is trained, kept and judged: models and their data, checkpoints, fingerprints, evaluation.

It imports `coordination` and what is below it.
"""
