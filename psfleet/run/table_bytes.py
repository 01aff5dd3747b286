"""The bytes of embedding tables that each ps of a run will hold, as far as they are known before the run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from psfleet.inventory.problems import InventoryProblem
from psfleet.run.folder import saved_settings
from psfleet.run.settings import model_card
from trainer.contract.json_files import read_object
from trainer.contract.model_card import OF_SETTING
from trainer.contract.model_files import model_name
from trainer.contract.plan import ClusterPlan
from trainer.contract.settings import TrainingSettings
from trainer.contract.table_models import ps_bytes
from trainer.host.wording import counted, first_of, grouped

VARIABLE = "trainer_table_rows"


def table_bytes_of_tasks(plan: ClusterPlan, settings: Mapping[str, Any]) -> dict[str, int]:
    """Return {task: bytes of tables that it will hold at most}, for the tasks that hold a part of the model.

    These are the ps; for a local run, the chief. `settings` are those of a run, as `run_settings` returns
    them. Return {} for programs, for models without tables, and for unknown models.
    """
    if settings.get("program") or settings.get("unchosen"):
        return {}
    cluster = settings["cluster"]
    holding = (plan.chief,) if cluster["replication"] == "local" else plan.tasks_of("ps")
    card = model_card(settings)
    if card is None:
        return {}
    held = ps_bytes(card, TrainingSettings.from_mapping(cluster).as_dict(), len(holding))
    return {task.name: bytes_ for task, bytes_ in zip(holding, held, strict=False)}


def table_bytes_of_run(folder: Path) -> dict[str, int]:
    """Return {task: bytes of tables} (`table_bytes_of_tasks`) for the run of `folder`.

    Return {} if its plan or settings are missing or damaged.
    """
    try:
        return table_bytes_of_tasks(
            ClusterPlan.from_json(read_object(folder / "plan.json")), saved_settings(folder)
        )
    except (KeyError, ValueError):
        return {}


def table_bytes_of_hosts(plan: ClusterPlan, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return {host: {"bytes": .., "what": .., "remedy": ..}} for the hosts of tasks that will hold tables.

    `bytes` is what the host's tasks will hold together; `what` says in words for which tasks and rows;
    `remedy` is the advice if the host lacks the memory. Return {} for programs, and for models without
    tables.
    """
    held, cluster = table_bytes_of_tasks(plan, settings), settings["cluster"]
    names = grouped((task.host, task.name) for task in plan.tasks if task.name in held)
    if not names:
        return {}
    card = model_card(settings)
    of_tables = [table["rows"] for table in card.tables.values()] if card else []
    by_setting = OF_SETTING in of_tables
    model, rows = model_name(cluster["model"]), cluster["table_rows"] if by_setting else max(of_tables)
    parts = f" in {counted(len(held), 'part')}" if len(held) > 1 else ""
    remedy = f"give it more memory, have more ps, or lower {VARIABLE}"
    if not by_setting:
        remedy = "give it more memory, or have more ps"
    return {
        host: {
            "bytes": sum(held[name] for name in its),
            "what": f"for the part of {first_of(its)} in model {model}, which has {rows:,} rows{parts}",
            "remedy": remedy,
        }
        for host, its in names.items()
    }


def with_files_to_edit(
    tables: Mapping[str, Mapping[str, Any]], cure: Callable[[InventoryProblem], str]
) -> dict[str, dict[str, Any]]:
    """Return a copy of `tables`; remedies that name trainer_table_rows also name the file that sets it.

    `tables` is what `table_bytes_of_hosts` returned; `cure` returns the advice for a problem
    (`Definitions.cure`).
    """
    rows_of = {host: InventoryProblem(its["what"], VARIABLE, (host,)) for host, its in tables.items()}
    return {
        host: {**its, "remedy": f"{its['remedy']} ({cure(rows_of[host])})"}
        if VARIABLE in its["remedy"]
        else {**its}
        for host, its in tables.items()
    }
