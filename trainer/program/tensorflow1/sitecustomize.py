"""Gives a program TensorFlow 1 (`trainer_program_tensorflow1`); see ../observed/sitecustomize.py."""

from pathlib import Path

import psfleet_imports
import psfleet_tensorflow1

psfleet_tensorflow1.begin()
psfleet_imports.run_next_sitecustomize(Path(__file__).parent)
