"""Where the variables and operations of a run really were: one report a task, and one text over all of them.

TensorFlow's own `log_device_placement` prints a line for each operation as it was asked for. This is taken
from the partitions that TensorFlow executed, after it had merged and split operations, and counts these by
what they are for. No TensorFlow is needed to read it: `python -m trainer.device_report FOLDER`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.console import say
from trainer.progress import printable

Report = dict[str, Any]

INPUT, READS, GRADIENTS, AGGREGATION = "input", "variable reads", "gradients", "aggregation"
OPTIMIZER, LEDGER, TRANSFERS, REWRITTEN = "optimizer", "ledger", "transfers", "rewritten by TensorFlow"
# The order in which they are shown, after the operations that the model names.
_GROUPS = (INPUT, READS, GRADIENTS, AGGREGATION, OPTIMIZER, LEDGER, TRANSFERS, REWRITTEN)
_SCOPES = {
    "gradients": GRADIENTS,
    "aggregation": AGGREGATION,
    "GradientDescent": OPTIMIZER,
    "Adam": OPTIMIZER,
    "psfleet": LEDGER,
}
_LEDGER_VARIABLES = "psfleet/"
# They compute nothing.
_UNCOUNTED = {"Const", "NoOp", "VarHandleOp", "Placeholder"}
_TRANSFERS = {"_Send", "_Recv", "_HostSend", "_HostRecv"}
_TRANSFER_NAME = re.compile(r"_S\d+$")
_REWRITERS = re.compile(r"ConstantFolding|\w+Optimizer")
_NUMBER = re.compile(r"_\d+$")
_WIDTH = 118


def report(task: str, partition_graphs: Iterable[Any]) -> Report:
    """What `devices/<task>.json` holds, from the GraphDefs of RunMetadata.partition_graphs.

    They are there after a run with RunOptions(output_partition_graphs=True); of several runs, operations that
    are in more than one count once. Constants are not counted.
    """
    nodes = {(node.device, node.name): node for graph in partition_graphs for node in graph.node}
    variables = {_variable_name(node): device for (device, _), node in nodes.items() if _is_variable(node)}
    operations: dict[str, Counter[str]] = defaultdict(Counter)
    for device, group in _grouped(nodes):
        operations[device][group] += 1
    return {
        "task": task,
        "variables": dict(sorted(variables.items())),
        "operations": {device: dict(sorted(operations[device].items())) for device in sorted(operations)},
    }


def group_of(name: str, operation: str, inputs: Sequence[str]) -> str:
    """What an operation is for: one of the groups above, or its own name up to the first slash.

    Names of optimizers and of gradients count wherever they stand in the name, as in "tower_1/gradients/..".
    """
    parts = [_NUMBER.sub("", part) for part in name.split("/")]
    if parts[0] == "tower" and len(parts) > 1:
        parts = parts[1:]
    scopes = [_SCOPES[part] for part in parts if part in _SCOPES]
    rules = (
        (operation in _TRANSFERS or _TRANSFER_NAME.search(name), TRANSFERS),
        (any(source.startswith(_LEDGER_VARIABLES) for source in inputs), LEDGER),
        (operation.startswith("Iterator"), INPUT),
        ("Accumulator" in operation or "Mutex" in operation, AGGREGATION),
        (_REWRITERS.fullmatch(parts[0]), REWRITTEN),
        (scopes, scopes[0] if scopes else ""),
        (operation == "ReadVariableOp", READS),
    )
    return next((group for applies, group in rules if applies), parts[0])


def _grouped(nodes: Mapping[tuple[str, str], Any]) -> Iterator[tuple[str, str]]:
    """Device and group of each operation that counts."""
    groups = {
        key: group_of(node.name, node.op, list(node.input))
        for key, node in nodes.items()
        if node.op not in _UNCOUNTED
    }
    while more := [key for key in groups if groups[key] != LEDGER and _only_from_ledger(nodes[key], groups)]:
        groups.update(dict.fromkeys(more, LEDGER))
    return ((device, group) for (device, _), group in groups.items())


def _only_from_ledger(node: Any, groups: Mapping[tuple[str, str], str]) -> bool:  # noqa: ANN401
    """Whether it computes with nothing but values of the ledger, such as the global step."""
    sources = [(node.device, source.partition(":")[0]) for source in node.input if not source.startswith("^")]
    found = {groups[source] for source in sources if source in groups}
    return found == {LEDGER} and node.op not in _TRANSFERS


def write(path: Path, content: Report) -> None:
    """Write a task's report as JSON; a disk that refuses is said, and does not stop training."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_text(json.dumps(content, indent=1) + "\n")
        temporary.replace(path)
    except OSError as error:
        say(f"The device report cannot be written: {path}: {error.strerror}")


def render(folder: Path) -> str:
    """One text over `folder/devices/*.json`: each device with its variables and operations."""
    reports, complaints = _read(folder / "devices")
    if not reports:
        return "\n".join([f"{folder} holds no device report that can be read", *complaints, ""])
    lines = [
        "Where the variables and operations of a step really were: the graphs that TensorFlow executed.",
        *complaints,
        *_variable_lines(reports),
        *_operation_lines(reports),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the text over a run's folder."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer.device_report",
        description="Show on which device each variable and each kind of operation of a run was.",
    )
    parser.add_argument("folder", type=Path, help="a run's folder, with devices/")
    sys.stdout.write(render(parser.parse_args(arguments).folder))
    return 0


def _is_variable(node: Any) -> bool:  # noqa: ANN401 - a NodeDef, without importing TensorFlow
    return bool(node.op == "VarHandleOp")


def _variable_name(node: Any) -> str:  # noqa: ANN401
    return node.attr["shared_name"].s.decode() or str(node.name)


def _variable_lines(reports: Sequence[Report]) -> list[str]:
    """The variables of each device; who saw a variable where is told only where they do not agree."""
    seen: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for entry in reports:
        for name, device in entry["variables"].items():
            seen[name][device].append(entry["task"])
    by_device: dict[str, list[str]] = defaultdict(list)
    for name, devices in seen.items():
        for device, tasks in devices.items():
            by_device[device].append(name if len(devices) == 1 else f"{name} (says {', '.join(tasks)})")
    lines = ["", f"Variables, as {_names([entry['task'] for entry in reports])} used them"]
    return lines + _table({device: ", ".join(_with_slots(names)) for device, names in by_device.items()})


def _with_slots(names: Sequence[str]) -> list[str]:
    """The names in order, an optimizer's slots beside their variable: "offset (+ Adam, Adam_1)"."""
    slots: dict[str, list[str]] = {}
    for name in sorted(names):
        variable, _, slot = name.rpartition("/")
        if variable in slots:
            slots[variable].append(slot)
        else:
            slots[name] = []
    return [f"{name} (+ {', '.join(added)})" if added else name for name, added in slots.items()]


def _operation_lines(reports: Sequence[Report]) -> list[str]:
    """The operations of each device. Tasks that differ only in which one they are, are shown once."""
    alike: dict[str, list[Report]] = defaultdict(list)
    for entry in reports:
        own = _own_device(entry["task"])
        operations = {device.replace(own, "(own)"): groups for device, groups in entry["operations"].items()}
        alike[json.dumps(operations, sort_keys=True)].append(entry)
    lines = []
    for first, *others in alike.values():
        lines += ["", f"Operations in the graph of {first['task']}"]
        if others:
            names = _names([entry["task"] for entry in others])
            lines[-1] += f"; the same, with a device of its own, in that of {names}"
        lines += _table({device: _groups(groups) for device, groups in first["operations"].items()})
    return lines


def _groups(groups: Mapping[str, int]) -> str:
    """The model's own operations by their names, then the known groups with their counts."""
    model = [
        f"{name} x {count}" if count > 1 else name for name, count in groups.items() if name not in _GROUPS
    ]
    known = [f"{group} {groups[group]}" for group in _GROUPS if group in groups]
    return "; ".join([*([f"model: {', '.join(model)}"] if model else []), *known])


def _table(rows: Mapping[str, str]) -> list[str]:
    short = {_short(device): text for device, text in sorted(rows.items(), key=_in_order)}
    width = max(map(len, short), default=0) + 2
    return [
        line
        for device, text in short.items()
        for line in textwrap.wrap(
            text,
            width=max(_WIDTH, width + 40),
            initial_indent=f"  {device:{width}}",
            subsequent_indent=" " * (width + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def _in_order(row: tuple[str, str]) -> list[tuple[int, str]]:
    """Sorts task 10 after task 9."""
    return [(int(part) if part.isdigit() else -1, part) for part in re.split(r"(\d+)", row[0])]


def _short(device: str) -> str:
    """For "/job:ps/replica:0/task:0/device:CPU:0" that is "ps0 CPU:0"; another text stays as it is."""
    match = re.fullmatch(r"/job:(\w+)/replica:0/task:(\d+)(?:/device:(\w+:\d+))?", device)
    return f"{match[1]}{match[2]} {match[3] or ''}".strip() if match else device


def _own_device(task: str) -> str:
    job, index = task.rstrip("0123456789"), task[len(task.rstrip("0123456789")) :]
    return f"/job:{job}/replica:0/task:{index}/"


def _names(tasks: Sequence[str]) -> str:
    """A few names in full; of many the first and the last."""
    return (
        ", ".join(tasks)
        if len(tasks) <= 4
        else f"{tasks[0]}, {tasks[1]} ... {tasks[-1]} ({len(tasks)} tasks)"
    )


def _read(folder: Path) -> tuple[list[Report], list[str]]:
    """The reports in the order of their tasks, and what is wrong with those that cannot be read."""
    reports, complaints = [], []
    for path in sorted(folder.glob("*.json"), key=_by_task):
        content, complaint = _read_one(path)
        if content is None:
            complaints.append(printable(f"{path} cannot be read: {complaint}"))
        else:
            reports.append(content)
    return reports, complaints


def _read_one(path: Path) -> tuple[Report | None, str]:
    try:
        return _checked(json.loads(path.read_text())), ""
    except (OSError, ValueError, RecursionError) as error:  # the last of JSON that is nested deeply
        return None, str(error)


def _checked(content: object) -> Report:
    """The report, printable. Raises ValueError where it is none: it comes from a host."""
    if not isinstance(content, dict):
        raise ValueError("expected an object")
    variables, operations = content.get("variables"), content.get("operations")
    if not (isinstance(variables, dict) and isinstance(operations, dict)):
        raise ValueError("expected the keys task, variables and operations")
    if not all(isinstance(device, str) for device in variables.values()):
        raise ValueError("variables is not name -> device")
    for groups in operations.values():
        if not (isinstance(groups, dict) and all(isinstance(count, int) for count in groups.values())):
            raise ValueError("operations is not device -> group -> count")
    return {
        "task": printable(str(content.get("task"))),
        "variables": {printable(name): printable(device) for name, device in variables.items()},
        "operations": {
            printable(device): {printable(group): count for group, count in groups.items()}
            for device, groups in operations.items()
        },
    }


def _by_task(path: Path) -> tuple[str, int]:
    job = path.stem.rstrip("0123456789")
    return job, int(path.stem[len(job) :] or 0)


if __name__ == "__main__":
    sys.exit(main())
