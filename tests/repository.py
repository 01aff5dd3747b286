"""Where the files of the project are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
