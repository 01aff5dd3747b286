"""Debian."""

from __future__ import annotations

from .apt import APT
from .system import Driver, System

DEBIAN = System(
    identity="debian",
    name="Debian",
    tested=("12", "13"),
    untested=(),
    packages=APT,
    programs={
        "systemctl": "systemd",
        "sshd": "openssh-server",
        "ssh": "openssh-client",
        "ssh-keygen": "openssh-client",
        "nft": "nftables",
        "tail": "coreutils",
        "sleep": "coreutils",
        "cp": "coreutils",
        "mv": "coreutils",
        "wg": "wireguard-tools",
        "wg-quick": "wireguard-tools",
        "ip": "iproute2",
        "wireguard-go": "wireguard-go",
    },
    sshd_service="ssh",
    sshd_directory="/etc/ssh/sshd_config.d",
    driver=Driver(
        # None of these brings a desktop.
        packages=(
            "nvidia-kernel-dkms",
            "nvidia-smi",
            "nvidia-modprobe",
            "nvidia-persistenced",
            "libcuda1",
            "libnvidia-ml1",
            "libnvidia-ptxjitcompiler1",
            "linux-headers-{flavour}",
        ),
        headers="linux-headers-",
        source="add `contrib non-free non-free-firmware` to the components of "
        "/etc/apt/sources.list.d/debian.sources (or /etc/apt/sources.list)",
        smi="nvidia-smi",
    ),
)
