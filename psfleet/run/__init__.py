"""Computes the settings of a run's tasks, the lead, and whether the run starts, resumes or is refused."""
