"""The GPUs and drivers of NVIDIA that TensorFlow's wheel supports."""

from __future__ import annotations

# The compute capabilities that the wheel of TensorFlow 2.21 supports, and the oldest driver for its CUDA 12.
OLDEST_CAPABILITY = (6, 0)
FIRST_UNSUPPORTED_CAPABILITY = (10, 0)
OLDEST_DRIVER = 525
# The first driver of CUDA 12.5. Older drivers run code for CUDA 12, but may not compile its PTX.
JIT_DRIVER = 555
