from pathlib import Path

import pytest

from psfleet.run.hook_events import FILE_NAME, note_event


def test_each_state_is_new_once_until_the_run_begins_again(tmp_path: Path) -> None:
    seen = ("running", "stopped", "stopped", "running", "ended", "ended", "judged", "ended", "judged")
    new = [note_event(tmp_path, state) for state in seen]
    assert new == [True, True, False, True, True, False, True, False, False]


@pytest.mark.parametrize("content", ["{", '"stopped"', ""])
def test_a_state_is_new_if_the_note_is_damaged(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    assert note_event(tmp_path, "stopped")
    assert not note_event(tmp_path, "stopped"), "the note is whole again"
