"""Which tasks of a program only serve, as their launchers tell systemd: the others may have work left."""

import contextlib
import socket
from functools import partial
from pathlib import Path

import pytest

from tests.trainer.program.launched import Tasks, program
from trainer.host.task_units import ONLY_SERVES

# Each worker serves; worker 0 alone does nothing else.
SERVERS = """
    import json, os, subprocess, sys, threading, time
    import tensorflow as tf
    task = json.loads(os.environ["TF_CONFIG"])
    index = task["task"]["index"]
    server = tf.distribute.Server(task["cluster"], "worker", index)

    def work():
        print("trains", flush=True)
        time.sleep(3600)

    if index == 1:
        threading.Thread(target=server.join, daemon=True).start()
        work()
    elif index == 2:
        threading.Thread(target=work, daemon=True).start()
    elif index == 3:
        subprocess.Popen([sys.executable, "-c", "import time; print('trains', flush=True); time.sleep(3600)"])
    server.join()
"""
PINGS = 3


def _trains(tasks: Tasks, name: str) -> bool:
    return "trains" in tasks.output(name)


@pytest.mark.slow
def test_only_a_task_whose_one_thread_waits_in_join_is_said_to_only_serve(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        managers = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) for _ in range(4)]
        tasks = stack.enter_context(Tasks(tmp_path, program(tmp_path, SERVERS), worker=4))
        for index, manager in enumerate(managers):
            manager.bind(str(tmp_path / f"notify{index}"))
            manager.settimeout(120)
            tasks.environment = {"NOTIFY_SOCKET": str(tmp_path / f"notify{index}")}
            tasks.start(f"worker{index}")
        while managers[0].recv(1000).decode() != f"STATUS={ONLY_SERVES}":
            pass
        for index, manager in enumerate(managers[1:], 1):
            tasks.until(partial(_trains, tasks, f"worker{index}"), "it to train")
            manager.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    assert ONLY_SERVES not in manager.recv(1000).decode()
            manager.settimeout(120)
            heard = [manager.recv(1000).decode() for _ in range(PINGS)]
            assert heard == ["WATCHDOG=1"] * PINGS, f"worker{index}"
