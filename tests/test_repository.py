"""What a test sees of the clone that contains it."""

from pathlib import Path

from tests.repository import ROOT, played, written_play


def test_a_playbook_of_a_test_does_not_use_runs_or_state_in_the_clone(tmp_path: Path) -> None:
    places = ("lookup('psfleet.cluster.project_path', 'runs')", "'runs' | realpath")
    tasks = [{"ansible.builtin.debug": {"msg": f"kept in {{{{ {place} }}}}"}} for place in places]
    done = played(written_play(tmp_path, *tasks), "-i", "here,", "-c", "local")
    assert done.stdout.count("kept in /") == len(places), done.stdout + done.stderr
    assert str(ROOT) not in done.stdout
