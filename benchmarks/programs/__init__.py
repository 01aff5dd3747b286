"""The programs with which the trainer is compared, each written as its own documentation shows."""
