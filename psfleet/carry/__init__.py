"""Carries files to hosts and back: wheels and their locks, archives, the files of a run."""
