"""Computes the settings of a run's tasks, its lead, and whether it starts, resumes or is refused."""
