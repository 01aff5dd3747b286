"""Between two saves of all rows only those are written that have changed since, and nothing is lost by it."""

import signal
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.few import few
from tests.trainer.engine.table_model import Numbers
from tests.trainer.processes import PAUSING, Cluster, until
from tests.trainer.row_files import whole_tables
from tests.trainer.task.table_runs import SavingRun, SavingTasks, same
from trainer.contract.exit_codes import STOPPED
from trainer.contract.model_files import built_in_card
from trainer.coordination.ledger_parts import GLOBAL_STEP
from trainer.model.checkpoints import (
    UNFINISHED,
    Checkpoint,
    DamagedError,
    checkpoint_paths,
    read_checkpoint,
    step_in,
)
from trainer.model.fingerprint import with_computed_sums
from trainer.model.tables.checkpoint_files import RowLayout
from trainer.task.tables import chief

# Bytes of a position; of the numbers that a row of each width has with its slot of adagrad.
POSITION, OF_ROW = 4, {"tables_4": 2 * 4 * 4, "tables_1": 2 * 4}
OPTIMIZERS = ("sgd", "adagrad", "adam", "ftrl")


@pytest.fixture(autouse=True)
def _deltas_may_be_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of the model are so small that a few steps need half of their rows."""
    monkeypatch.setattr(chief, "_SHARE_OF_DELTAS", 100)


def deltas_of(checkpoint: Checkpoint) -> int:
    """How many deltas a checkpoint has."""
    return max(table.last_delta for table in checkpoint.tables)


def brought(run: SavingRun, checkpoint: Checkpoint) -> dict[str, Numbers]:
    """The tables and slots of a checkpoint, by its files."""
    run.tables.fetch_to_chief(checkpoint)
    return whole_tables(checkpoint)


@pytest.mark.parametrize("optimizer", few(OPTIMIZERS, "adam"))
def test_a_full_checkpoint_and_deltas_are_a_later_full_one_to_the_bit(
    optimizer: str, tmp_path: Path, cluster_of: Callable[[int], SavingTasks]
) -> None:
    run = SavingRun(cluster_of(2), tmp_path, optimizer=optimizer, batch_size=1, seed=9)
    for deltas in range(4):
        run.steps(1)
        saved, _ = run.save()
        assert deltas_of(saved) == deltas
        assert run.session.fingerprint() == (saved.fingerprint, saved.global_step)
        changed = {its.layout.table: sum(file.rows for file in its.deltas) for its in saved.tables}
        # An example needs at most four rows of each table, of 28 and 11.
        assert changed["tables_4"] <= 4 * deltas
        assert changed["tables_1"] <= 2 * deltas
    composed = brought(run, saved)
    full, held = run.save(all_rows=True)
    run.close()
    assert (deltas_of(full), full.global_step) == (0, saved.global_step)
    assert full.fingerprint == saved.fingerprint
    later = brought(run, full)
    assert composed.keys() == later.keys()
    assert [name for name in later if composed[name].tobytes() != later[name].tobytes()] == []
    same(held, {**held, **later})


def test_a_delta_has_the_changed_rows_and_their_positions_alone(
    tmp_path: Path, cluster_of: Callable[[int], SavingTasks]
) -> None:
    run = SavingRun(cluster_of(2), tmp_path)
    run.steps(1)
    _, before = run.save()
    run.steps(2)
    saved, held = run.save()
    run.close()
    changed = {name: (before[name] != held[name]).any(axis=1).sum() for name in OF_ROW}
    assert min(changed.values()) > 0
    assert run.tables.record_fields == {"rows_written": sum(changed.values()), "deltas": 1}
    new = [
        file.stat().st_size
        for disk in run.disks
        for file in disk.glob(f"checkpoints/model.ckpt-{saved.global_step}.*.rows")
        if file.stat().st_nlink == 1  # the others are those of the full one, too
    ]
    assert sum(new) == sum(count * (POSITION + OF_ROW[name]) for name, count in changed.items())


@pytest.mark.parametrize("model", ["wide_deep", "dlrm"])
def test_a_delta_has_at_most_a_tenth_more_bytes_than_its_rows(model: str) -> None:
    count, card = 300_000, built_in_card(model)
    assert card is not None
    variables = [
        RowLayout(f"tables_{width}{slot}", "float32", (1_000_000, width), 2)
        for width in (table["width"] for table in card.tables.values())
        for slot in ("", "/Adagrad")
    ]
    files = {
        file for rows in variables for its in (rows, rows.positions) for file in its.delta_files(0, 1, count)
    }
    of_rows = count * sum(rows.row_bytes for rows in variables)
    assert of_rows < sum(file.size for file in files) <= 1.1 * of_rows


def test_pushes_go_on_while_a_cut_is_written(
    tmp_path: Path, cluster_of: Callable[[int], SavingTasks]
) -> None:
    run, ended = SavingRun(cluster_of(2), tmp_path), Event()
    pushes = Thread(target=run.push, args=[ended], daemon=True)
    pushes.start()
    for deltas in range(4):
        before = run.session.counters()[GLOBAL_STEP]
        until(lambda least=before: run.session.counters()[GLOBAL_STEP] > least, "pushes")  # type: ignore[misc]
        saved, held = run.save()
        assert deltas_of(saved) == deltas
        same(held, {**held, **brought(run, saved)})
    ended.set()
    pushes.join()
    assert run.session.counters()[GLOBAL_STEP] > saved.global_step
    run.restore(saved)
    same(held, run.values())
    run.close()


def test_a_run_that_was_restored_goes_on_with_deltas(
    tmp_path: Path, cluster_of: Callable[[int], SavingTasks]
) -> None:
    settings: dict[str, object] = {"optimizer": "adam", "seed": 9, "batch_size": 1}
    run = SavingRun(cluster_of(2), tmp_path, **settings)
    run.steps(2)
    saved, _ = run.save()
    run.steps(2)
    run.close()
    again = SavingRun(cluster_of(2), tmp_path, **settings)
    again.spoil()
    again.tables.forget()
    again.restore(saved)
    again.steps(1)
    later, held = again.save()
    assert deltas_of(later) == 1
    same(held, {**held, **brought(again, later)})
    again.close()
    other = SavingRun(cluster_of(1), tmp_path, **settings)
    other.restore(later)
    other.steps(1)
    last, _ = other.save()
    other.close()
    assert deltas_of(last) == 0  # what other ps have written is not on this one's disk


def test_rows_of_a_save_that_failed_are_in_the_next_one(
    tmp_path: Path, cluster_of: Callable[[int], SavingTasks]
) -> None:
    run = SavingRun(cluster_of(2), tmp_path)
    run.steps(1)
    run.save()
    run.steps(1)
    with run.tables.blocked_pushes():
        run.tables.begin_writing(2)
    until(lambda: len([*run.disks[1].glob(f"*/*-2{UNFINISHED}.tables_1.delta1.*")]) == 1, "a file")
    for file in run.disks[1].glob(f"*/*-2{UNFINISHED}.tables_1.delta1.*"):
        file.unlink()
    with pytest.raises(DamagedError, match=r"ps1: .*tables_1"):
        run.tables.finish(2)
    run.steps(1)
    saved, held = run.save()
    assert deltas_of(saved) == 0
    same(held, {**held, **brought(run, saved)})
    # Nor is anything lost if a save ends between its cut and its files, or its chief.
    for is_another_chief in (False, True):
        run.steps(1)
        with run.tables.blocked_pushes():
            run.tables.begin_writing(saved.global_step + 1)
        if is_another_chief:
            run.tables.drop_connection()
        run.steps(1)
        saved, held = run.save()
        assert deltas_of(saved) == 0
        same(held, {**held, **brought(run, saved)})
    run.close()


def test_a_missing_or_damaged_delta_is_refused_with_its_name(
    tmp_path: Path, cluster_of: Callable[[int], SavingTasks]
) -> None:
    run = SavingRun(cluster_of(2), tmp_path)
    run.steps(1)
    full, held = run.save()
    run.steps(1)
    saved, _ = run.save()
    lost, damaged = (
        run.disks[part] / f"checkpoints/{saved.path.name}.{name}.delta1.{part}-of-2.00000.rows"
        for part, name in enumerate(("tables_4.Adagrad", "tables_1.positions"))
    )
    lost.unlink()
    damaged.write_bytes(bytes(damaged.stat().st_size))
    reports: dict[str, str] = {}
    found = run.folder.newest_good(
        lambda path, why: reports.update({path.name: why}), None, run.tables.fetch_missing_files
    )
    why = f"ps0: {lost.name} is not there; ps1: {damaged.name} is damaged, or of another save: "
    assert reports == {saved.path.name: f"{why}its SHA-256 is not that in the manifest"}
    assert found is not None
    assert found.global_step == full.global_step
    run.restore(found)
    same(held, run.values())
    run.close()


def test_a_checkpoint_keeps_what_it_needs_of_those_that_are_removed(
    tmp_path: Path, cluster_of: Callable[[int], SavingTasks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chief, "MOST_DELTAS", 3)
    run = SavingRun(cluster_of(2), tmp_path)
    # If the newest two have files in common, the last one that does not have them stays.
    for deltas, kept in (
        *((0, [1]), (1, [1, 2]), (2, [2, 3]), (3, [3, 4])),
        *((0, [4, 5]), (1, [4, 5, 6]), (2, [4, 6, 7])),
    ):
        run.steps(1)
        saved, held = run.save()
        assert deltas_of(saved) == deltas
        assert [step_in(path) for path in checkpoint_paths(run.folder.directory)] == kept
        for ps in ("ps0", "ps1"):
            run.tables.copy(saved, ps, "worker1", kept)
        for folder in ("ps0/checkpoints", "ps1/checkpoints", "worker1/copies"):
            names = (run.disks[0].parent / folder).glob("*.rows")
            assert {file.name.split(".")[1] for file in names} == {f"ckpt-{step}" for step in kept}
        if deltas:
            same(held, {**held, **brought(run, saved)})
            _lose_files(run, saved)
            run.restore(saved)  # from the copies
            same(held, run.values())
    former, problem = read_checkpoint(run.folder.directory / "model.ckpt-4")
    assert former is not None, problem
    _lose_files(run, former)
    run.restore(former)
    run.close()


def _lose_files(run: SavingRun, checkpoint: Checkpoint) -> None:
    for disk in run.disks:
        for file in disk.glob(f"checkpoints/{checkpoint.path.name}.*.rows"):
            file.unlink()


@pytest.mark.chaos
def test_a_ps_that_is_killed_in_a_save_costs_what_came_after_the_last_whole_checkpoint(
    tmp_path: Path,
) -> None:
    flags = ["--model=wide_deep", "--table_rows=1000000", "--batch_size=64", "--steps_per_call=1"]
    flags += ["--checkpoint_interval_seconds=1", "--steps=1000000"]
    with Cluster(tmp_path, 2, flags=flags, program=PAUSING) as cluster:
        cluster.start()
        cluster.until(lambda: len(cluster.records("worker0", "checkpointed")) > 1, "two checkpoints")
        folder = cluster.directory("ps1") / "checkpoints"
        cluster.until(lambda: any(folder.glob(f"*{UNFINISHED}*.rows")), "a save")
        cluster.signal("ps1", signal.SIGKILL)
        cluster.until(lambda: bool(cluster.records("worker0", "recovering")), "the loss to be noticed")
        cluster.start("ps1")
        cluster.until(lambda: bool(cluster.records("worker0", "restored")), "the restore")
        restored = cluster.only("worker0", "restored")
        events = cluster.records("worker0")
        saved = [its for its in events[: events.index(restored)] if its.event == "checkpointed"]
        assert saved[0].integer("deltas") == 0
        assert restored.integer("global_step") == saved[-1].integer("global_step")
        assert restored.text("fingerprint") == saved[-1].text("fingerprint")
        later = len([its for its in events if its.event == "checkpointed"]) + 1
        cluster.until(lambda: len(cluster.records("worker0", "checkpointed")) > later, "later checkpoints")
        assert cluster.records("worker0", "checkpointed")[-1].integer("deltas") > 0
        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0) | {"worker0": STOPPED}, cluster.outputs()
        final = cluster.records("worker0", "checkpointed")[-1]
    checkpoint, problem = read_checkpoint(Path(final.text("path")))
    assert checkpoint is not None, problem
    assert with_computed_sums(checkpoint.path, checkpoint.tables) == list(checkpoint.tables)
