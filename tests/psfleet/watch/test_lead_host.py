import pytest

from psfleet.watch.lead_reading import Reading
from psfleet.watch.watched_run import WatchedRun
from tests.psfleet.watch.played_runs import decided_run, progress, unit

ASK = 10.0
BEGIN = 1000.0
PATIENCE = 60.0
LOST = (
    "no answer from the host of worker0, node0, for 20 s: only its other hosts still show how the run "
    "stands. It may be back within 1:00"
)


def answer_of(worker: str, below: str = "running") -> str:
    return f"{unit('worker', 1, worker, below)}\n--psfleet--\n"


def silent(view: WatchedRun, seconds: float, worker1: str | None, problem: str = "") -> list[str]:
    """Let the lead's host be silent for this time; node1 answers the state of worker1, or is silent, too."""
    told = []
    for at in range(int(seconds) + 1):
        if worker1 is not None and at % ASK == 0:
            told += view.add_units("node1", worker1, BEGIN + at)
        told += view.add_silence(BEGIN + at, problem)
        if at < PATIENCE:
            assert view.fate(BEGIN + at, ASK) == "unknown"
    return [note.text for note in told]


@pytest.fixture
def view() -> WatchedRun:
    """Return a run of two workers with ps and lead on node0, last read at `BEGIN`."""
    view = WatchedRun(decided_run(2, recovery_deadline_seconds=PATIENCE))
    view.add_reading(Reading(progress()), BEGIN)
    return view


@pytest.mark.parametrize(
    ("worker1", "fate"),
    [
        (answer_of("active"), "goes on"),
        (answer_of("activating", "auto-restart"), "goes on"),
        (answer_of("inactive", "dead"), "over"),
        (answer_of("failed", "failed"), "over"),
        ("sudo: no", "unwatched"),
        (None, "unwatched"),
    ],
)
def test_a_run_with_a_silent_lead_is_over_if_no_other_task_runs(
    view: WatchedRun, worker1: str | None, fate: str
) -> None:
    told = silent(view, PATIENCE, worker1)
    assert told.count(LOST) == 1
    assert view.fate(BEGIN + PATIENCE, ASK) == fate


def test_simultaneous_silence_of_all_hosts_counts_as_the_watchers_own_network_loss(view: WatchedRun) -> None:
    """The run is not ended: the last answer of node1, from just before, does not decide about the run."""
    view.add_units("node1", answer_of("inactive", "dead"), BEGIN + 2)
    silent(view, PATIENCE, None)
    assert view.fate(BEGIN + PATIENCE, ASK) == "unwatched"


def test_hosts_that_have_not_answered_yet_do_not_decide_about_a_run() -> None:
    """The setting `recovery_deadline_seconds` may be shorter than the polls within which a host answers."""
    view = WatchedRun(decided_run(2, recovery_deadline_seconds=2 * ASK))
    for at in (0, 2 * ASK):
        view.add_silence(BEGIN + at, "")
    assert view.fate(BEGIN + 2 * ASK, ASK) == "unwatched"


def test_a_silent_lead_and_its_return_are_each_reported_once(view: WatchedRun) -> None:
    first, *others = silent(view, 5, None, "Connection refused\x1b[2J\nby it")
    assert first == "the host of worker0, node0, does not answer: Connection refused [2J by it"
    assert others == []
    (note,) = view.add_reading(Reading(progress()), BEGIN + 6)
    assert (note.text, note.good) == ("the host of worker0, node0, answers again", True)
    assert view.add_reading(Reading(progress()), BEGIN + 7) == []
    assert view.fate(BEGIN + 6 + PATIENCE - 1, ASK) == "unknown"
