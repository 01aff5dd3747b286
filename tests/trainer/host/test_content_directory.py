import threading
import time
from pathlib import Path

import pytest

from trainer.host.content_directory import locked, point


def test_a_link_is_never_away_while_it_is_turned(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    link = tmp_path / "current"
    point(link, "a")
    missing = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            if not link.is_dir():
                missing.append(time.monotonic())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(300):
        point(link, "ab"[number % 2])
    done.set()
    watcher.join()
    assert missing == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "current"]


def test_a_directory_in_the_way_of_a_link_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "current").mkdir()
    with pytest.raises(ValueError, match="not a symbolic link"):
        point(tmp_path / "current", "a")


def test_a_lock_that_is_held_is_waited_for_and_then_reported(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with locked(path, 1), pytest.raises(TimeoutError, match=r"\.lock"), locked(path, 0.1):
        pass
    with locked(path, 0.1):
        pass
