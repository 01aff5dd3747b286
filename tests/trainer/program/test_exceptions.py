"""The exception in a program's output, and whether a lost task caused it."""

import pytest

from tests.repository import ROOT
from trainer.host.error_lines import exception_in, first_cause_in, in_short, is_out_of_memory
from trainer.process.lost_connection import is_lost_connection

PRINTED = ROOT / "tests" / "trainer" / "host" / "printed"
TENSORFLOW = """\
step 10
Traceback (most recent call last):
  File "main.py", line 3, in <module>
    train()
tensorflow.python.framework.errors_impl.InternalError: Graph execution error:

Detected at node 'x' defined at (most recent call last):
  File "main.py", line 3, in <module>

failed to connect to all addresses
"""


def test_the_exception_of_the_last_traceback_is_found_and_ignored_ones_are_skipped() -> None:
    chained = 'Traceback (most recent call last):\n  File "a"\nKeyError: 1\n\nDuring handling ...\n\n'
    last = (
        'Traceback (most recent call last):\n  File "b", line 1\n    raise X\n    ^^^\nX: because\nof this\n'
    )
    ignored = 'Exception ignored in: <function f>\nTraceback (most recent call last):\n  File "c"\nY: no\n'
    assert exception_in(chained + last) == "X: because\nof this"
    log = "W0000 00:00:1795262048.465540   27082 port.cc:153] tearing down\n"
    assert exception_in(last + ignored) == exception_in(last + log) == "X: because\nof this"
    assert exception_in("all is well\n") == ""
    assert exception_in("Traceback (most recent call last):\n  File cut off") == ""


def test_a_lost_task_is_recognised_by_tensorflows_names_and_phrases() -> None:
    prefix = "tensorflow.python.framework.errors_impl."
    assert is_lost_connection(f"{prefix}UnavailableError: x")
    assert is_lost_connection(f"{prefix}AbortedError: x")
    assert in_short(exception_in(TENSORFLOW)) == "InternalError: failed to connect to all addresses"
    assert is_lost_connection(exception_in(TENSORFLOW))
    assert is_lost_connection(
        "tensorflow.python.distribute.coordinator.cluster_coordinator.PSUnavailableError: ps 0"
    )
    assert not is_lost_connection(f"{prefix}InvalidArgumentError: shapes")
    assert not is_lost_connection("concurrent.futures._base.CancelledError")
    assert not is_lost_connection("ValueError: tensorflow failed to connect")


def test_a_forgotten_initializer_or_a_missing_file_is_a_bug_and_no_lost_task() -> None:
    prefix = "tensorflow.python.framework.errors_impl."
    forgotten = (
        "Could not find variable w. This could mean that the variable is uninitialized or does not exist"
    )
    assert not is_lost_connection(f"{prefix}FailedPreconditionError: {forgotten}")
    assert not is_lost_connection(f"{prefix}NotFoundError: data.csv; No such file; it does not exist")


def test_a_message_with_a_large_value_keeps_its_end() -> None:
    value = "\n".join(f" {number}" for number in range(99))
    said = f'Traceback (most recent call last):\n  File "a"\nValueError: {{\n{value}\n}} is none\n'
    assert in_short(exception_in(said)).splitlines() == ["ValueError: {", " 0", "...", " 98", "} is none"]


def test_a_refused_call_is_named_as_the_cause_of_a_closed_queue() -> None:
    refused = "The same RunGraph (Worker) request was received twice"
    closed = (
        'Traceback (most recent call last):\n  File "a"\ntensorflow.python.framework.errors_impl.'
        "OutOfRangeError: FIFOQueue '_3_sync_token_q' is closed and has insufficient elements\n"
    )
    found = first_cause_in(f"Error reported to Coordinator: {refused}. [type.googleapis.com/x]\n{closed}")
    assert in_short(found) == f"AbortedError: {refused}"
    assert is_lost_connection(found)
    assert in_short(first_cause_in(closed)).startswith("OutOfRangeError: FIFOQueue '_3_sync_token_q'")
    # An error of the program's own has nothing to do with a call that was refused, and repeated.
    own = 'Traceback (most recent call last):\n  File "a"\nKeyError: 1\n'
    assert first_cause_in(f"{refused}\n{own}") == "KeyError: 1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ((PRINTED / "memory.txt").read_text(), True),
        ("MemoryError", True),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB for an array", True),
        ("OSError: [Errno 12] Cannot allocate memory", True),
        ("tensorflow.python.framework.errors_impl.ResourceExhaustedError: No space left on device", False),
        ("ValueError: MemoryError is a class", False),
        ((PRINTED / "shapes.txt").read_text(), False),
    ],
)
def test_errors_of_too_little_memory_are_recognised(text: str, expected: bool) -> None:
    assert is_out_of_memory(text) is expected


def test_the_reason_is_the_last_line_of_tensorflows_message() -> None:
    why = "/data/model.ckpt-7.data-00000-of-00001.tempstate1; No space left on device"
    said = f"""\
Traceback (most recent call last):
  File "main.py", line 9, in <module>
    saver.save(session, "/data/model.ckpt")
tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:

Detected at node 'save/SaveV2' defined at (most recent call last):
  File "main.py", line 3, in <module>
Node: 'save/SaveV2'
{why}
\t [[{{{{node save/SaveV2}}}}]]

Original stack trace for 'save/SaveV2':
  File "main.py", line 3, in <module>
    saver = tf.train.Saver()
"""
    assert in_short(exception_in(said)) == f"ResourceExhaustedError: {why}"
