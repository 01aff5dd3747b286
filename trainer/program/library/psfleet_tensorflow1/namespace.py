"""What `import tensorflow` gives: `tensorflow.compat.v1`, and what else TensorFlow 1 had below its name."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

# Modules of TensorFlow 1 that TensorFlow 2 has not.
_PACKAGES = Path(__file__).with_name("packages")


def give_tensorflow1(module: ModuleType) -> None:
    """Put `compat.v1`, with the behaviour of version 2 off, where Python looks for this module.

    Modules below it are found as before, and in version 1's own folder first.
    """
    from absl import flags

    v1 = module.compat.v1
    v1.disable_v2_behavior()
    v1.__path__ = [*v1.__path__, *module.__path__, str(_PACKAGES)]
    sys.modules["tensorflow"] = v1
    from tensorflow import contrib

    v1.contrib = contrib
    # A script may have a --log_dir of its own: those of absl's logging were not there.
    for name in flags.FLAGS:
        flags.FLAGS[name].allow_override = True
