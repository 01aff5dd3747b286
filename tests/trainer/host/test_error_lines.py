"""Texts that processes of TensorFlow 2.21 and Python printed when they failed are shortened for people.

The files of printed/ are the output of real processes; only their paths and those of TensorFlow are replaced.
"""

import time
from pathlib import Path

import pytest

from trainer.host.error_lines import (
    LONGEST_LINE,
    MOST_LINES,
    error_in_short,
    exception_in,
    in_short,
    last_words,
)
from trainer.host.task_traces import MOST_BYTES

PRINTED = Path(__file__).with_name("printed")
LACKS = "No such file or directory"
MNIST = f"/data/mnist/train.csv; {LACKS}"
SIZES = "Matrix size-incompatible: In[0]: [{},28], In[1]: [784,10]"
LOST = "Additional GRPC error information from remote target /job:ps/replica:0/task:0 while calling"


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("missing_file_data", f"NotFoundError: {MNIST}"),
        ("missing_file_keras", f"NotFoundError: {MNIST}"),
        ("missing_file_queues", f"NotFoundError: {MNIST}"),
        ("missing_file_session", f"NotFoundError: {MNIST}"),
        (
            "missing_files",
            f"NotFoundError: NOT_FOUND: /data/mnist/part-1.csv; {LACKS}\n"
            f"NOT_FOUND: /data/mnist/part-0.csv; {LACKS}",
        ),
        ("graph_dump", f"RuntimeError: cannot read the data: Graph execution error:\n{MNIST}"),
        ("shapes", f"InvalidArgumentError: {SIZES.format(3)}"),
        ("shapes_session", f"InvalidArgumentError: {SIZES.format(1)}"),
        (
            "memory",
            "ResourceExhaustedError: OOM when allocating tensor with shape[2000000,2000000] and type float "
            "on /job:localhost/replica:0/task:0/device:CPU:0 by allocator mklcpu",
        ),
        (
            "lost_ps",
            f"UnavailableError: sendmsg: Broken pipe (32)\n{LOST} /tensorflow.WorkerService/RunGraph:",
        ),
        ("import", "ModuleNotFoundError: No module named 'mylayers'"),
    ],
)
def test_an_error_of_tensorflow_is_shortened_to_its_own_line(file: str, told: str) -> None:
    printed = (PRINTED / f"{file}.txt").read_text()
    assert in_short(exception_in(printed)) == told
    assert in_short(told) == told  # shortening is idempotent
    # A program records the message, and psfleet adds the class of its exit code.
    message = exception_in(printed).removeprefix("tensorflow.python.framework.errors_impl.")
    assert in_short(f"program: {message}") == f"program: {told}"


def test_a_cause_named_in_the_log_comes_before_its_consequence() -> None:
    """A queue is closed where the thread that fills it has failed."""
    printed = (PRINTED / "missing_file_queues.txt").read_text()
    first = printed.partition("\nDuring handling of the above exception")[0]
    cause, closed = in_short(exception_in(first)).splitlines()
    assert cause == f"NOT_FOUND: {MNIST}"
    assert closed.startswith("OutOfRangeError: RandomShuffleQueue '_2_shuffle_batch/random_shuffle_queue'")


def test_the_error_about_a_missing_device_is_shown_without_the_graph() -> None:
    (told,) = in_short(exception_in((PRINTED / "no_such_device.txt").read_text())).splitlines()
    assert told.startswith("InvalidArgumentError: Cannot assign a device for operation w/Initializer")
    assert told.endswith("All available devices [/job:localhost/replica:0/task:0/device:CPU:0].")
    assert len(told) <= LONGEST_LINE


def test_log_lines_of_libraries_are_not_taken_for_last_words() -> None:
    lines = (PRINTED / "absl_alone.txt").read_text().splitlines()
    assert len(lines) == 7
    assert exception_in("\n".join(lines)) == ""
    assert last_words(lines) == "step 1"
    assert last_words(lines[:-1]) == ""


@pytest.mark.parametrize(
    "text", ["", "the program ended with exit code 1", "loss is nan at step 7", "X: because\nof this"]
)
def test_a_text_without_a_tensorflow_error_stays_unchanged(text: str) -> None:
    assert in_short(text) == text


def test_no_text_is_longer_than_five_lines_of_300_characters() -> None:
    text = "".join(f"{number} {'x' * 6000}\n" for number in range(200))
    told = in_short(f"ValueError: {text}").splitlines()
    assert len(told) == len(last_words(text.splitlines()).splitlines()) == MOST_LINES
    assert all(len(line) <= LONGEST_LINE for line in told)


@pytest.mark.parametrize(
    "piece", [" ", "\n", "a\n", "a: ", "{{function_node ", "x.cc:1 ", "node {\n", "(0) A: "]
)
def test_a_hostile_text_is_shortened_in_bounded_time(piece: str) -> None:
    text = f"XError: {piece * (MOST_BYTES // len(piece))}\nRecent warning and error logs:\n{piece * 10_000}"
    began = time.process_time()
    assert len(in_short(text)) <= MOST_LINES * (LONGEST_LINE + 1)
    assert time.process_time() - began < 5  # some 0.05 s; a pattern that goes back and forth takes minutes


def test_an_exception_is_shown_with_its_class_and_its_message() -> None:
    assert error_in_short(OSError(2, LACKS, "/data/x")) == f"FileNotFoundError: [Errno 2] {LACKS}: '/data/x'"
    assert error_in_short(KeyError()) == "KeyError"
