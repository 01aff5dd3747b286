"""How often the progress of a long step is told."""

from collections.abc import Callable
from threading import Event
from types import SimpleNamespace

import pytest

from psfleet.carry import long_step


@pytest.mark.parametrize(
    ("tells", "said"),
    [
        (lambda _: "wait for node2", [10, 20, 40, 80, 160, 320]),
        (lambda count: f"{count} MB", list(range(10, 401, 10))),
        (lambda count: "one" if count <= 2 else "two", [10, 20, 30, 60, 120, 240]),
        (lambda count: "" if count <= 38 else "at last", [390]),
    ],
    ids=["the same words", "a count", "other words", "no words at first"],
)
def test_the_same_words_come_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch, tells: Callable[[int], str], said: list[int]
) -> None:
    """The step takes 400 s by a clock that moves on by ten seconds whenever the words are asked for."""
    clock, over = SimpleNamespace(seconds=0), Event()
    lines: list[str] = []
    monkeypatch.setattr(long_step, "time", SimpleNamespace(monotonic=lambda: float(clock.seconds)))

    def words() -> str:
        if clock.seconds >= 400:
            over.set()
            return ""
        clock.seconds += 10
        return tells(clock.seconds // 10)

    with long_step.report_progress(lines.append, words, 0.001):
        over.wait()
    assert [int(line.split()[-2]) for line in lines] == said
