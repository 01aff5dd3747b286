"""The environments in which programs are tested with other TensorFlows than psfleet's own."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".state" / "tensorflows"
UV = ROOT / ".venv" / "bin" / "uv"
# TensorFlow 2.12 has no wheel for a newer Python.
PYTHON = "3.11"
(OWN,) = re.findall(r'"tensorflow-cpu==([\d.]+)"', (ROOT / "pyproject.toml").read_text())
# The oldest TensorFlow that a program may have; the last with tf.estimator and Keras 2; the first without.
VERSIONS = ("2.12.1", "2.15.1", "2.16.2", OWN)
# Tests of what psfleet loads into a program's process, and verdicts on programs: also those that take long.
TESTS = ("-m", "", "tests/trainer/program", "tests/psfleet/evidence/programs")
_NEEDED = ("pytest", "pyyaml")
# TensorFlow 2.20 accepts every newer protobuf, but fails with protobuf 7 where it writes a graph as text.
_MORE = {"2.20.0": ("protobuf<7",)}


def versions() -> Sequence[str]:
    """Return the versions of TensorFlow to test with: those in the variable VERSIONS, by default VERSIONS."""
    return os.environ.get("VERSIONS", "").split() or VERSIONS


def python_with(version: str) -> Path:
    """Return the Python of an environment with this TensorFlow and with pytest; make what is missing of it.

    Raises subprocess.CalledProcessError if uv finds no such TensorFlow.
    """
    environment = ENVIRONMENTS / version
    python = environment / "bin" / "python"
    locked = (ROOT / "requirements" / "dev.txt").read_text()
    pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)", locked, re.MULTILINE))
    packages = [f"tensorflow-cpu=={version}", *(f"{name}=={pins[name]}" for name in _NEEDED)]
    packages += _MORE.get(version, ())
    for command in (
        ["venv", "--quiet", "--allow-existing", "--python", PYTHON, str(environment)],
        ["pip", "install", "--quiet", "--python", str(python), "--only-binary", ":all:", *packages],
    ):
        subprocess.run([UV, *command], check=True)
    return python
