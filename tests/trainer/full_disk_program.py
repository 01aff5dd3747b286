"""The trainer on a full disk. Started like the trainer, with the folder that is full before its flags."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from trainer import __main__ as program

_CLONE_NEWNS = 0x20000

if __name__ == "__main__":
    folder = Path(sys.argv.pop(1))
    folder.mkdir(parents=True, exist_ok=True)
    # What is mounted is seen by this process alone.
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", folder], check=True)
    os._exit(program.main(sys.argv[1:]))
