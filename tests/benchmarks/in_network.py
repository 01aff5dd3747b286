"""Enters a network and is then another module: `in_network.py /proc/PID/ns/net MODULE ARGUMENTS...`."""

import ctypes
import runpy
import sys
from pathlib import Path

_NETWORK = 0x40000000  # CLONE_NEWNET

if __name__ == "__main__":
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(sys.argv[1]).open() as network:
        if libc.setns(network.fileno(), _NETWORK):
            raise OSError(ctypes.get_errno(), "setns")
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
