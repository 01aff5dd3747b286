"""The program that runs on every host, and the reading of what it records.

Nothing here imports TensorFlow: the controller reads plans and records without it.
"""
