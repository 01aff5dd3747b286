"""Tasks that save tables, for all tests of this folder."""

from collections.abc import Callable, Iterator, Sequence

import pytest
import tensorflow as tf

from tests.trainer.task.table_runs import SavingTasks
from trainer.engine.tables import changed_rows
from trainer.model.pieces import TableVariable
from trainer.model.tables.restoring import RowLoading
from trainer.task.tables import chief


@pytest.fixture(scope="session")
def all_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, SavingTasks]]:
    """Number of ps -> tasks, which live as long as this process."""
    made: dict[tuple[tf.Graph, str], RowLoading] = {}

    def loading(tables: Sequence[TableVariable], device: str) -> RowLoading:
        place = (tf.compat.v1.get_default_graph(), device)
        return made.get(place) or made.setdefault(place, RowLoading(tables, device))

    class Clusters(dict[int, SavingTasks]):
        def __missing__(self, ps: int) -> SavingTasks:
            return self.setdefault(ps, SavingTasks(ps, tmp_path_factory.mktemp("disks")))

    with pytest.MonkeyPatch.context() as patch:
        # They read few rows at once, so that pushes come between.
        patch.setattr(changed_rows, "_BYTES_AT_ONCE", 100)
        # The operations of a graph, which many runs share, are created once.
        patch.setattr(chief, "RowLoading", loading)
        yield Clusters()


@pytest.fixture
def cluster_of(all_clusters: dict[int, SavingTasks]) -> Callable[[int], SavingTasks]:
    """So many ps, whose disks are empty when a test begins."""
    for cluster in all_clusters.values():
        cluster.remove_files()
    return all_clusters.__getitem__
