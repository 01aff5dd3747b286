"""Ubuntu, as far as it differs from Debian."""

from __future__ import annotations

from dataclasses import replace

from .debian import DEBIAN
from .system import Driver

UBUNTU = replace(
    DEBIAN,
    identity="ubuntu",
    name="Ubuntu",
    tested=(),
    untested=("22.04", "24.04"),
    driver=Driver(
        # None of these brings a desktop.
        packages=(
            "nvidia-headless-580-server",
            "nvidia-utils-580-server",
            "nvidia-modprobe",
            "linux-headers-{flavour}",
        ),
        headers="linux-headers-",
        source="add `restricted multiverse` to the components of /etc/apt/sources.list.d/ubuntu.sources "
        "(or /etc/apt/sources.list)",
        smi="nvidia-utils-*-server",
        signed="linux-modules-nvidia-580-server-generic",
        compiling=("nvidia-headless",),
    ),
)
