"""Python's garbage collector is disabled while a program loads TensorFlow, and restored afterwards."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.program import launcher

BROKEN = "import gc\nraise ImportError(f'loaded with the collector: {gc.isenabled()}')\n"
LOADS_IT = """
import gc, sys
from psfleet_imports import AfterLoading
sys.meta_path.insert(0, AfterLoading({}))
gc.enable() if sys.argv[1] == "on" else gc.disable()
try:
    import tensorflow
except ImportError as error:
    print(error)
print("and now:", gc.isenabled())
"""


@pytest.mark.parametrize(("had", "has"), [("on", True), ("off", False)])
def test_the_collector_is_restored_also_if_tensorflow_cannot_be_loaded(
    tmp_path: Path, had: str, has: bool
) -> None:
    (tmp_path / "tensorflow.py").write_text(BROKEN)
    path = os.pathsep.join([str(launcher.LIBRARY), str(tmp_path)])
    command = [sys.executable, "-S", "-c", LOADS_IT, had]
    ran = subprocess.run(
        command, env={"PYTHONPATH": path}, check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert ran.stdout.splitlines() == ["loaded with the collector: False", f"and now: {has}"]
