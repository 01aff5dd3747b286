"""`python -m trainer` runs one task of a cluster. This file handles flags, signals and exit codes."""

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from itertools import chain

from trainer.contract.exit_codes import PROGRAM, STOPPED, USAGE
from trainer.contract.records import RecordWriter, open_records
from trainer.process import flags, gpus
from trainer.process.console import keep_within_quota, say
from trainer.process.ending import with_ending_file
from trainer.process.failure import with_failure_record
from trainer.process.freed_memory import keep_freed_memory
from trainer.process.lives import Lives
from trainer.process.loading import loading_tensorflow
from trainer.process.proxies import bypass_proxies
from trainer.process.stop_request import StopRequest

_SECONDS_TO_STOP_SERVING = 3.0
# A connection breaks, and its calls fail, once data is unacknowledged for 20 s (TCP_USER_TIMEOUT). By default
# the kernel retries for a quarter of an hour, and after an interruption it waits again about as long as the
# interruption lasted. gRPC's own pings could find more, but a ps that computes does not answer pings, so they
# are off (the longest interval). Reconnections are frequent, so that a restarted task is found soon: by
# default gRPC waits up to two minutes between attempts, and 20 s for each attempt.
_GRPC_OPTIONS = (
    "grpc.keepalive_time_ms=2147483646,grpc.keepalive_timeout_ms=20000,"
    "grpc.initial_reconnect_backoff_ms=200,grpc.max_reconnect_backoff_ms=1000,"
    "grpc.min_reconnect_backoff_ms=3000"
)


def main(arguments: Sequence[str]) -> int:
    """Run the task that the arguments (without the program's name) describe; return its exit code.

    If they cannot be used, print every problem and return USAGE (64).
    """
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable()  # prints stacks on the watchdog's SIGABRT
    try:
        options = flags.parse(arguments)
    except flags.UsageError as error:
        for problem in error.problems:
            sys.stderr.write(f"{problem}\n")
        sys.stderr.write("`python -m trainer --help` lists all flags.\n")
        if error.identity is not None:
            fields = {"class": "usage", "reason": str(error)}
            open_records(error.run_directory, error.identity, say).write("failed", fields)
        return USAGE
    keep_within_quota(os.environ.get("PSFLEET_LOG_MEGABYTES", ""))
    lives = Lives(options.run_directory, options.cluster.task)
    exit_code = with_ending_file(options.run_directory, options.cluster.task, lambda: _live(options, lives))
    lives.end(exit_code)
    return exit_code


def _live(options: flags.Options, lives: Lives) -> int:
    if options.program is not None:
        from trainer.program.launcher import run_program

        return run_program(options, lives)
    if options.cluster.job == "ps":
        # Set before TensorFlow is loaded: a ps that uses a GPU would take GPU memory from its host's worker.
        os.environ.setdefault(gpus.VISIBLE, "")
    elif options.cluster.existing_servers and not options.cluster.serves:
        # The client's server uses the GPUs.
        os.environ[gpus.VISIBLE] = ""
    keep_freed_memory()
    gpus.prepare(os.environ)
    bypass_proxies(os.environ, chain(options.cluster.ps_hosts, options.cluster.worker_hosts))
    # TensorFlow warns even of sessions that end properly. With a GPU, warnings may matter.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1" if gpus.visible_devices(os.environ) else "2")
    os.environ.setdefault("TF_GRPC_DEFAULT_OPTIONS", _GRPC_OPTIONS)
    records = open_records(options.run_directory, options.identity, say)
    stop = StopRequest(_SECONDS_TO_STOP_SERVING) if options.cluster.serves else StopRequest()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())

    def work() -> int:
        def run() -> int:
            lives.begin()
            return _run(options, records, stop, lives)

        return with_failure_record(run, records, options.cluster.task)

    return _supervise(work, stop)


def _run(options: flags.Options, records: RecordWriter, stop: StopRequest, lives: Lives) -> int:
    with loading_tensorflow():
        from trainer.coordination.running_task import RunningTask

    task = RunningTask(options, records, stop, lives)
    if options.cluster.serves:
        from trainer.task.server import run_serving

        return run_serving(task)
    from trainer.task.worker import run_worker

    return run_worker(task)


def _supervise(work: Callable[[], int], stop: StopRequest) -> int:
    """Return `work()`, called in a thread so that signals are handled while a call hangs.

    Return STOPPED without its end if a requested stop takes too long, and PROGRAM if `work` raises.
    """
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(work()), daemon=True)
    thread.start()
    while thread.is_alive():
        if stop.is_late():
            say("The task's work does not end: exiting without it.")
            return STOPPED
        thread.join(0.5)
    return codes[0] if codes else PROGRAM


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # TensorFlow's server cannot be shut down, and tearing it down with the interpreter may hang.
    os._exit(exit_code)
