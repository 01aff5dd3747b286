"""The module that `import tensorflow` gives: `tensorflow.compat.v1`, with other modules of TensorFlow 1."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

# Modules of TensorFlow 1 that TensorFlow 2 lacks.
_PACKAGES = Path(__file__).with_name("packages")


def give_tensorflow1(module: ModuleType) -> None:
    """Let `import tensorflow` give `module.compat.v1`, with the behaviour of version 2 switched off.

    `module` is TensorFlow 2. Submodules are looked for in version 1's own folder, then where they were
    before, then in `packages`.
    """
    from absl import flags

    v1 = module.compat.v1
    v1.disable_v2_behavior()
    v1.__path__ = [*v1.__path__, *module.__path__, str(_PACKAGES)]
    # Keras 2 imports some of its modules only now, with `import tensorflow.compat.v2 as tf`.
    v1.compat = module.compat
    sys.modules["tensorflow"] = v1
    from tensorflow import contrib

    v1.contrib = contrib
    sys.meta_path.append(contrib.Refusing())
    # A script may define flags such as --log_dir, which absl's logging did not define in TensorFlow 1's time.
    for name in flags.FLAGS:
        flags.FLAGS[name].allow_override = True
