"""A process keeps the memory of freed tensors."""

import subprocess
import sys

import pytest

# Prints the page faults of twenty rounds of three blocks of 24 MB, as a thread of TensorFlow would have them.
PROGRAM = """
import resource, sys, threading
from trainer.process.freed_memory import keep_freed_memory

if sys.argv[1] == "keeps":
    assert keep_freed_memory()

def rounds(count):
    for _ in range(count):
        blocks = [bytearray(24 << 20) for _ in range(3)]
        for block in blocks:
            block[::4096] = bytes(len(block[::4096]))
        del blocks, block

def measure():
    rounds(2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    rounds(20)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

thread = threading.Thread(target=measure)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("how", ["keeps", "gives back"])
def test_freed_blocks_are_used_again_without_page_faults(how: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    pages_of_a_round = 3 * (24 << 20) // 4096
    assert (int(done.stdout) < pages_of_a_round) == (how == "keeps")
