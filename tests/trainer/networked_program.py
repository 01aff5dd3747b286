"""The trainer in a network of its own. Started like the trainer, with the network's file before its flags."""

import os
import sys
from pathlib import Path

from tests.networks import enter
from trainer import __main__ as program

if __name__ == "__main__":
    with Path(sys.argv.pop(1)).open() as network:
        enter(network.fileno())
    os._exit(program.main(sys.argv[1:]))
