"""The device report of a task: the device on which each variable and each operation really was.

TensorFlow's own `log_device_placement` prints a line for each operation of the graph as it was built. This
report is made from the partitions that TensorFlow executed, after it had merged and split operations, and
counts the operations by their purpose.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.contract.json_files import write_json
from trainer.contract.operation_groups import (
    AGGREGATION,
    GRADIENTS,
    INPUT,
    LEDGER,
    OPTIMIZER,
    READS,
    REWRITTEN,
    TRANSFERS,
)
from trainer.process.console import say

Report = dict[str, Any]

_SCOPES = {
    "gradients": GRADIENTS,
    "aggregation": AGGREGATION,
    "GradientDescent": OPTIMIZER,
    "Adam": OPTIMIZER,
    "Adagrad": OPTIMIZER,
    "Momentum": OPTIMIZER,
    "Ftrl": OPTIMIZER,
    "psfleet": LEDGER,
    "wire": TRANSFERS,
}
# Operations that compute nothing are not counted.
_UNCOUNTED = {"Const", "NoOp", "VarHandleOp", "Placeholder"}
_TRANSFERS = {"_Send", "_Recv", "_HostSend", "_HostRecv"}
_TRANSFER_NAME = re.compile(r"_S\d+$")
_REWRITERS = re.compile(r"ConstantFolding|\w+Optimizer")
_NUMBER = re.compile(r"_\d+$")


def report(task: str, partition_graphs: Iterable[Any]) -> Report:
    """Return the content of `devices/<task>.json`: the device of each variable, and operations by device.

    It is {"task": task, "variables": {name: device}, "operations": {device: {group: count}}}. Operations that
    compute nothing, such as constants, are left out. `partition_graphs` are the GraphDefs in
    `RunMetadata.partition_graphs`, which TensorFlow fills in a run with
    `RunOptions(output_partition_graphs=True)`. Graphs of several runs may be given; an operation that is in
    several graphs counts once.
    """
    nodes = {(node.device, node.name): node for graph in partition_graphs for node in graph.node}
    variables = {
        node.attr["shared_name"].s.decode() or str(node.name): device
        for (device, _), node in nodes.items()
        if node.op == "VarHandleOp"
    }
    operations: dict[str, Counter[str]] = defaultdict(Counter)
    for (device, _), group in _groups(nodes).items():
        operations[device][group] += 1
    return {
        "task": task,
        "variables": dict(sorted(variables.items())),
        "operations": {device: dict(sorted(operations[device].items())) for device in sorted(operations)},
    }


def group_of(name: str, operation: str, inputs: Sequence[str]) -> str:
    """Return the group of an operation: a constant of operation_groups.py, else the first part of its name.

    `operation` is its type, such as "MatMul"; `inputs` are the names of its inputs. With an input
    "psfleet/..", the group is "ledger", unless it is a transfer. A name of an optimizer or of gradients may
    stand at any place, as in "tower_1/gradients/..".

    Example: group_of("hidden_1/MatMul", "MatMul", []) -> "hidden"
    """
    parts = [_NUMBER.sub("", part) for part in name.split("/")]
    if parts[0] == "tower" and len(parts) > 1:
        parts = parts[1:]
    scope = next((_SCOPES[part] for part in parts if part in _SCOPES), "")
    rules = (
        (operation in _TRANSFERS or _TRANSFER_NAME.search(name), TRANSFERS),
        (any(source.startswith("psfleet/") for source in inputs), LEDGER),
        (operation.startswith("Iterator"), INPUT),
        ("Accumulator" in operation or "Mutex" in operation, AGGREGATION),
        (_REWRITERS.fullmatch(parts[0]), REWRITTEN),
        (scope, scope),
        (operation == "ReadVariableOp", READS),
    )
    return next((group for applies, group in rules if applies), parts[0])


def _groups(nodes: Mapping[tuple[str, str], Any]) -> dict[tuple[str, str], str]:
    groups = {
        key: group_of(node.name, node.op, list(node.input))
        for key, node in nodes.items()
        if node.op not in _UNCOUNTED
    }
    while more := [key for key in groups if groups[key] != LEDGER and _only_from_ledger(nodes[key], groups)]:
        groups.update(dict.fromkeys(more, LEDGER))
    return groups


def _only_from_ledger(node: Any, groups: Mapping[tuple[str, str], str]) -> bool:  # noqa: ANN401
    """Return True if an operation has inputs, and all come from the ledger; False for transfers."""
    sources = [(node.device, source.partition(":")[0]) for source in node.input if not source.startswith("^")]
    source_groups = {groups[source] for source in sources if source in groups}
    return source_groups == {LEDGER} and node.op not in _TRANSFERS


def write(path: Path, content: Report) -> None:
    """Write `content` to `path` as JSON; if that fails, print a line and raise nothing.

    Missing folders are created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, content, indent=1)
    except OSError as error:
        say(f"The device report cannot be written: {path}: {error.strerror}")
