"""Each ps saves and restores the rows of tables that it holds, in one cut with all else."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest
import tensorflow as tf

from tests.few import few
from tests.trainer.processes import until
from tests.trainer.task.table_runs import SavingRun, SavingTasks, same
from trainer.contract.records import RecordWriter
from trainer.coordination.ledger_parts import GLOBAL_STEP
from trainer.coordination.running_task import RunningTask
from trainer.model.checkpoints import Checkpoint, DamagedError, checkpoint_paths, read_checkpoint
from trainer.model.fingerprint import fingerprint_of, fingerprints_of_ps, with_computed_sums
from trainer.model.tables.checkpoint_files import MANIFEST, problems_beside, tables_in
from trainer.process import flags
from trainer.task.saving import CheckpointSaver
from trainer.task.tables import local_files

OF_EACH_PS = ("beta1_power", "beta2_power", "adam_steps")


@pytest.mark.parametrize("optimizer", few(["adagrad", "adam"], "adam"))
def test_a_checkpoint_is_the_same_on_any_number_of_ps(
    optimizer: str, tmp_path: Path, cluster_of: Callable[[int], SavingTasks]
) -> None:
    first = SavingRun(cluster_of(3), tmp_path, optimizer=optimizer)
    first.steps(4)
    first.save()
    first.steps(2)
    saved, held = first.save()
    assert {table.last_delta for table in saved.tables} == {1}
    assert first.session.fingerprint() == (saved.fingerprint, 6)
    first.tables.fetch_to_chief(saved)
    first.close()
    assert with_computed_sums(saved.path, saved.tables) == list(saved.tables)
    whole = {**saved.values, **{its.layout.table: held[its.layout.table] for its in saved.tables}}
    assert saved.fingerprint == fingerprint_of(whole)
    for ps in (1, 2):
        other = SavingRun(cluster_of(ps), tmp_path, optimizer=optimizer, seed=9, batch_size=1)
        other.restore(saved)
        again, restored = other.save()
        other.close()
        same(held, restored)
        assert set(held) - set(restored) <= {f"{name}_{n}" for n in (1, 2) for name in OF_EACH_PS}
        assert {its.layout.table: its.total for its in again.tables} == {
            its.layout.table: its.total for its in saved.tables
        }


@pytest.mark.parametrize(
    ("optimizer", "lost"), few([("adagrad", ["ps1"]), ("adam", ["ps1", "ps2"])], ("adam", ["ps1", "ps2"]))
)
def test_lost_ps_restore_their_parts_alone_and_the_others_keep_theirs(
    optimizer: str, lost: list[str], tmp_path: Path, cluster_of: Callable[[int], SavingTasks]
) -> None:
    run, every = SavingRun(cluster_of(3), tmp_path, optimizer=optimizer), ["ps0", "ps1", "ps2"]
    run.steps(4)
    saved, held = run.save()
    of_save = fingerprints_of_ps(run.graph.variables, saved.values, run.tables.sums)
    assert run.session.ps_fingerprints(every) == of_save
    run.steps(3)
    later, now = run.values(), run.session.ps_fingerprints(every)
    assert not set(now.values()) & set(of_save.values())
    # A file that only another ps would read may be gone.
    for file in (run.disks[0] / "checkpoints").glob("*.rows"):
        file.unlink()
    run.restore_alone(saved, lost)
    found = run.values()
    assert run.session.ps_fingerprints(every) == {**now, **{ps: of_save[ps] for ps in lost}}
    assert run.session.counters()[GLOBAL_STEP] == 7
    run.close()
    for name in ("tables_4", "tables_1"):
        assert held[name].tobytes() != later[name].tobytes()
        for part, ps in enumerate(every):
            expected = held if ps in lost else later
            assert found[name][part::3].tobytes() == expected[name][part::3].tobytes()


def test_rows_that_are_there_are_restored_in_their_place(
    tmp_path: Path, cluster_of: Callable[[int], SavingTasks]
) -> None:
    """A ps may have no room for them twice."""
    run = SavingRun(cluster_of(2), tmp_path)
    run.steps(4)
    saved, held = run.save()
    run.steps(2)
    trained = run.values()
    assert not run.session.create()
    created, tables = run.values(), {its.layout.table for its in saved.tables}
    for name in trained:
        assert (created[name].tobytes() == trained[name].tobytes()) == (name in tables), name
    run.tables.forget()
    run.restore(saved)
    restored, _ = run.save()
    assert restored.fingerprint == saved.fingerprint
    same(run.values(), held)

    # Those of another run that a server still has.
    (part, *_) = run.graph.rows
    with run.graph.graph.as_default(), tf.device(part.device):
        value = tf.ones([1, *part.shape[1:]])
        handle = tf.raw_ops.VarHandleOp(dtype=value.dtype, shape=value.shape, shared_name=part.op.name)
        fewer = tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    run.session.session.run(fewer)
    assert not run.session.create()
    assert not run.values()["tables_4"][::2].any()
    assert run.values()["tables_4"][1::2].any()
    run.close()


def test_a_save_is_one_cut_while_another_worker_pushes(
    tmp_path: Path, cluster_of: Callable[[int], SavingTasks]
) -> None:
    run, ended = SavingRun(cluster_of(2), tmp_path), Event()
    pushes = Thread(target=run.push, args=[ended], daemon=True)
    pushes.start()
    for _ in range(3):
        before = run.session.counters()[GLOBAL_STEP]
        until(lambda least=before: run.session.counters()[GLOBAL_STEP] > least, "pushes")  # type: ignore[misc]
        saved, held = run.save()
    ended.set()
    pushes.join()
    assert run.session.counters()[GLOBAL_STEP] > saved.global_step
    run.restore(saved)
    same(held, run.values())
    assert run.session.fingerprint() == (saved.fingerprint, saved.global_step)
    run.close()


def test_pushes_go_on_if_the_chief_is_gone(
    tmp_path: Path, cluster_of: Callable[[int], SavingTasks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_files, "_SECONDS_TO_HOLD", 0.5)
    run, ended = SavingRun(cluster_of(2), tmp_path), Event()
    pushes = Thread(target=run.push, args=[ended], daemon=True)
    pushes.start()
    with (
        pytest.raises(DamagedError, match="did not hold up the workers' pushes"),
        run.tables.blocked_pushes(),
    ):
        least = run.session.counters()[GLOBAL_STEP] + 1  # one may be counted that was applied before
        until(lambda: run.session.counters()[GLOBAL_STEP] > least, "pushes")
    ended.set()
    pushes.join()
    run.close()


def test_a_checkpoint_without_all_its_files_is_skipped_and_a_file_comes_from_where_it_is(
    tmp_path: Path, cluster_of: Callable[[int], SavingTasks]
) -> None:
    run = SavingRun(cluster_of(2), tmp_path)
    run.steps(2)
    first, _ = run.save()
    run.steps(2)
    last, held = run.save(all_rows=True)
    lost, damaged = (
        run.disks[part] / f"checkpoints/model.ckpt-{last.global_step}.tables_4.Adagrad.{part}-of-2.00000.rows"
        for part in (0, 1)
    )
    run.tables.copy(last, "ps0", "worker1", [first.global_step, last.global_step])
    copies = [*run.workers_disk.glob("copies/*.rows")]
    assert len(copies) == 4
    lost.unlink()
    run.restore(last)
    same(held, run.values())
    lost.unlink()
    for copy in copies:
        copy.unlink()
    content = bytearray(damaged.read_bytes())
    content[3] ^= 1
    damaged.write_bytes(content)
    reports: dict[str, str] = {}
    found = run.folder.newest_good(
        lambda path, why: reports.update({path.name: why}), None, run.tables.fetch_missing_files
    )
    run.close()
    missing = f"ps0: {lost.name} is not there; ps1: {damaged.name} is damaged, or of another save: "
    assert reports == {last.path.name: f"{missing}its SHA-256 is not that in the manifest"}
    assert found is not None
    assert found.global_step == first.global_step


def test_the_tables_of_a_checkpoint_come_to_the_chief_for_an_evaluation_also_after_the_save(
    tmp_path: Path, cluster_of: Callable[[int], SavingTasks]
) -> None:
    """A save may have become due at the same global step, just before the evaluation."""
    run = SavingRun(cluster_of(2), tmp_path / "other")
    addresses = [f"--{job}_hosts={','.join(hosts)}" for job, hosts in cluster_of(2).tasks.hosts.items()]
    own = ["--job_name=worker", "--task_index=0", "--run_id=test", f"--run_directory={tmp_path}"]
    options = flags.parse([*own, *addresses])
    task = RunningTask(options, RecordWriter(None, options.identity), target=cluster_of(2).tasks.target(0))
    saver = CheckpointSaver(task, run.graph)

    def whole() -> list[int]:
        found = [read_checkpoint(path)[0] for path in checkpoint_paths(tmp_path / "checkpoints")]
        return [its.global_step for its in found if its and not [*problems_beside(its.path, its.tables)]]

    for step in (1, 2):
        run.steps(1)
        saver.save(run.session, step, whole=step == 1)
        assert saver.finish() == ""
    assert (whole(), saver.saved_step) == ([1], 2)
    saver.save(run.session, 2, whole=True)
    assert saver.finish() == ""
    run.close()
    assert whole() == [1, 2]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, all_clusters: dict[int, SavingTasks]) -> Checkpoint:
    """A checkpoint after two steps."""
    run = SavingRun(all_clusters[2], tmp_path_factory.mktemp("saved"))
    run.steps(2)
    checkpoint, _ = run.save()
    run.close()
    return checkpoint


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"layout": "div"}, "has layout 'div', expected 'mod'"),
        ({"global_step": 5}, "has global_step 5, expected 2"),
        ({"ps": 3}, "has 2 parts of tables_4, expected 3, one for each ps"),
        ({"ps": 0}, "has ps 0, expected a number of ps"),
        ({"version": 1}, "has version 1, expected 2"),
        ({"deltas": [{"tables_4": {"rows": [15, 0]}}]}, "has .15, 0. rows of tables_4 in delta 1"),
    ],
)
def test_another_layout_is_refused(
    saved: Checkpoint, tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    folder = Path(shutil.copytree(saved.path.parent, tmp_path / "checkpoints"))
    checkpoint, listed = folder / saved.path.name, folder / f"{saved.path.name}.{MANIFEST}"
    manifest = json.loads(listed.read_text())
    assert tables_in(json.dumps(manifest), 2) == list(saved.tables)
    with pytest.raises(ValueError, match=problem):
        tables_in(json.dumps(manifest | change), 2)
    listed.write_text(json.dumps(manifest | change))
    assert read_checkpoint(checkpoint) == (
        None,
        f"{listed.name} is damaged, or the manifest of another save",
    )
    listed.unlink()
    assert "the manifest of its tables, is not there" in read_checkpoint(checkpoint)[1]
