"""Notices about where a program saves."""

from plugins.module_utils.saved_places import SavedPlace
from psfleet.watch.saves import Saves
from psfleet.watch.unit_states import unit_commands
from tests.psfleet.watch.played_runs import PlayedRun, decided_run, unit
from tests.psfleet.watch.test_lead_reading import PATHS


def test_each_unusual_place_of_saves_is_reported_once() -> None:
    saves = Saves()
    usual = [SavedPlace("checkpoints"), SavedPlace("output/x"), SavedPlace("gs://bucket/x")]
    assert list(saves.update("worker0", usual)) == []
    places = [SavedPlace("/tmp/logs"), SavedPlace("/dev/shm/m"), SavedPlace("m.keras")]
    told = list(saves.update("worker0", [*places, SavedPlace("/tmp/logs", "summaries")]))
    assert [(note.text, note.good) for note in told] == [
        ("worker0 saves to /tmp/logs: in the run's folder it will be saved/worker0/tmp/logs", True),
        (
            "worker0 saves to /dev/shm/m, which is deleted with the task: only files below /tmp are "
            "collected",
            False,
        ),
        ("worker0 saves to m.keras: in the run's folder it will be saved/worker0/m.keras", True),
    ]
    assert list(saves.update("worker0", places)) == []
    (other,) = saves.update("worker1", places[:1])
    assert other.text.startswith("worker1 saves to /tmp/logs")


def test_notices_of_a_host_are_limited() -> None:
    hostile = [SavedPlace(f"/tmp/\x1b[2J{'x' * 900}{number}") for number in range(100)]
    told = list(Saves().update("worker0", hostile))
    assert len(told) == 5
    assert all(note.text.isprintable() and len(note.text) < 400 for note in told)


def test_places_of_saves_are_read_from_the_hosts_of_a_program_and_reported() -> None:
    run = decided_run(2, program={"release": "abc"})
    assert "/var/lib/psfleet/runs/night/saves/worker1.jsonl" in unit_commands(run, PATHS, "psfleet")["node1"]
    assert "saves" not in unit_commands(decided_run(2), PATHS, "psfleet")["node1"]
    played = PlayedRun(run, silent=True)
    note = '{"path": "/tmp/export", "kind": "SavedModel"}'
    answer = f"{unit('worker', 1)}\n--psfleet--\na log\n--psfleet--\n{note}\n"
    (told,) = played.view.add_units("node1", answer, 1.0)
    assert (
        told.text == "worker1 saves to /tmp/export: in the run's folder it will be saved/worker1/tmp/export"
    )
