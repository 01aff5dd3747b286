"""From a run's folder to a verdict: whether the workers trained one model together, and it converged.

Pure Python over the records alone: it needs neither TensorFlow nor Ansible nor the hosts. docs/verdict.md
says what each check means; `python -m psfleet.evidence FOLDER` runs them.
"""
