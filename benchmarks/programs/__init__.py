"""The programs with which the trainer is compared, each written as the documentation of its method shows."""
