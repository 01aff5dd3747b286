import json
import sys
from pathlib import Path

from tests.repository import HERE, played, written_play


def told(folder: Path, script: str, state: str, *options: str) -> tuple[str, str]:
    """Return the input of the hook, a Python script, for a run in this state, and the output."""
    hook, heard = folder / "a hook.py", folder / "heard"
    hook.write_text(f"import sys\nopen({str(heard)!r}, 'w').write(sys.stdin.read() + sys.argv[1])\n{script}")
    heard.unlink(missing_ok=True)
    role = {"name": "psfleet.cluster.training_run", "tasks_from": "hook"}
    variables = {
        "training_run_hook": f"{sys.executable} '{hook}' --night\n" if script else "",
        "__training_evidence_result": {"verdict": "proven"},
        "__training_run_current": {"id": "night", "folder": f"{folder}", "settings": {"secret": "x"}},
        "__training_run_new_state": state,
    }
    play = written_play(folder, {"ansible.builtin.import_role": role, "vars": variables})
    done = played(play, "-i", "a,b,", *HERE, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return heard.read_text() if heard.exists() else "", done.stdout


def test_the_hook_gets_the_run_as_one_line_of_json(tmp_path: Path) -> None:
    for state in ("ended", "judged"):
        heard, printed = told(tmp_path, "pass", state)
        line, _, word = heard.partition("\n")
        of_state = {"verdict": "proven"} if state == "judged" else {}
        assert json.loads(line) == {"run_id": "night", "state": state, "folder": str(tmp_path), **of_state}
        assert word == "--night"
        assert "training_run_hook, " not in printed


def test_the_hook_is_told_of_each_state_once_by_all_playbooks_that_see_it(tmp_path: Path) -> None:
    run = ["running", "stopped", "stopped", "running", "ended", "ended", "judged", "ended", "judged"]
    heard = [bool(told(tmp_path, "pass", state)[0]) for state in run]
    assert heard == [True, True, False, True, True, False, True, False, False]


def test_a_run_that_was_resumed_without_a_hook_is_told_of_again(tmp_path: Path) -> None:
    assert told(tmp_path, "pass", "stopped")[0]
    assert not told(tmp_path, "", "running")[0]
    assert told(tmp_path, "pass", "stopped")[0]


def test_the_hook_is_told_although_what_it_was_told_before_is_damaged(tmp_path: Path) -> None:
    for content in ("{", '"stopped"', ""):
        (tmp_path / "hook.json").write_text(content)
        assert told(tmp_path, "pass", "stopped")[0]
    (tmp_path / "hook.json").unlink()
    (tmp_path / "hook.json").mkdir()
    assert told(tmp_path, "pass", "stopped")[0]


def test_no_hook_runs_without_a_command_or_in_check_mode(tmp_path: Path) -> None:
    assert told(tmp_path, "pass", "ended", "--check")[0] == ""
    assert told(tmp_path, "", "ended")[0] == ""


def test_a_failed_hook_is_reported_and_fails_nothing(tmp_path: Path) -> None:
    _, printed = told(tmp_path, "sys.exit('no such room')", "ended")
    assert "a hook.py' --night: exit code 1: no such room\n" in printed
