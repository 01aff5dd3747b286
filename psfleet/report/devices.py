"""Shows on which devices the variables and operations of a run were, from the device reports of its tasks.

`python -m psfleet.report.devices FOLDER` prints it, without TensorFlow and Ansible.
"""

import argparse
import json
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path

from psfleet.evidence.untrusted_files import read_json
from trainer.contract.json_objects import JsonObject
from trainer.contract.json_values import COUNT, TEXT, mapping_of
from trainer.contract.operation_groups import GROUPS
from trainer.contract.progress import printable
from trainer.contract.rules import setting
from trainer.contract.task_names import split_name

_WIDTH = 118
# The most bytes of one task's report, and of all reports together; a variable takes about a hundred bytes.
MOST_OF_A_TASK, MOST_OF_A_RUN = 16_000_000, 64_000_000


@dataclass(frozen=True)
class Report(JsonObject):
    """The device report of a task.

    `variables` is {variable: device}, `operations` is {device: {group of operations: count}}.
    """

    task: str = setting(MISSING, TEXT)
    variables: Mapping[str, str] = setting(MISSING, mapping_of(TEXT))
    operations: Mapping[str, Mapping[str, int]] = setting(MISSING, mapping_of(mapping_of(COUNT)))


def render(folder: Path) -> str:
    """Return a text about the device reports of a run's folder, `folder/devices/*.json`.

    It has each device with its variables and operations, and a line about each report that cannot be read. If
    none can be read, it says so.
    """
    reports, complaints = _read(folder / "devices")
    if not reports:
        return "\n".join([f"{folder} holds no device report that can be read", *complaints, ""])
    title = "Where the variables and operations of a step really were: the graphs that TensorFlow executed."
    lines = [title, *complaints, *_variable_lines(reports), *_operation_lines(reports)]
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the text about the run's folder that the arguments name; return 0, also without reports.

    Without `arguments`, those of the command line count.
    """
    parser = argparse.ArgumentParser(
        prog="python -m psfleet.report.devices",
        description="Show on which device each variable and each kind of operation of a run was.",
    )
    parser.add_argument("folder", type=Path, help="a run's folder, with devices/")
    sys.stdout.write(render(parser.parse_args(arguments).folder))
    return 0


def _variable_lines(reports: Sequence[Report]) -> list[str]:
    """Return the lines with the variables of each device, with a heading.

    If tasks disagree about a variable, it is listed on each device with the tasks that say so.
    """
    seen: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for entry in reports:
        for name, device in entry.variables.items():
            seen[name][device].append(entry.task)
    by_device: dict[str, list[str]] = defaultdict(list)
    for name, devices in seen.items():
        for device, tasks in devices.items():
            by_device[device].append(name if len(devices) == 1 else f"{name} (says {', '.join(tasks)})")
    lines = ["", f"Variables, as {_names([entry.task for entry in reports])} used them"]
    return lines + _table({device: ", ".join(_with_slots(names)) for device, names in by_device.items()})


def _with_slots(names: Sequence[str]) -> list[str]:
    """Return the names sorted, with a variable's optimizer slots in brackets after its name.

    Example: _with_slots(["offset/Adam", "offset"]) -> ["offset (+ Adam)"]
    """
    slots: dict[str, list[str]] = {}
    for name in sorted(names):
        variable, _, slot = name.rpartition("/")
        if variable in slots:
            slots[variable].append(slot)
        else:
            slots[name] = []
    return [f"{name} (+ {', '.join(added)})" if added else name for name, added in slots.items()]


def _operation_lines(reports: Sequence[Report]) -> list[str]:
    """Return the lines with the operations of each device, by the graph of each task.

    Tasks whose operations differ only in the index of their own device share lines.
    """
    alike: dict[str, list[Report]] = defaultdict(list)
    for entry in reports:
        own = "/job:{}/replica:0/task:{}/".format(*split_name(entry.task))
        operations = {device.replace(own, "(own)"): groups for device, groups in entry.operations.items()}
        alike[json.dumps(operations, sort_keys=True)].append(entry)
    lines = []
    for first, *others in alike.values():
        lines += ["", f"Operations in the graph of {first.task}"]
        if others:
            names = _names([entry.task for entry in others])
            lines[-1] += f"; the same, with a device of its own, in that of {names}"
        lines += _table({device: _groups(groups) for device, groups in first.operations.items()})
    return lines


def _groups(groups: Mapping[str, int]) -> str:
    """Return the operations on a device in words: the model's own by name, then known groups with counts.

    `groups` is {group or operation: count}. Names that are not in GROUPS are the model's own.
    """
    own = {name: f" x {count}" if count > 1 else "" for name, count in groups.items() if name not in GROUPS}
    model = ", ".join(f"{name}{times}" for name, times in own.items())
    known = [f"{group} {groups[group]}" for group in GROUPS if group in groups]
    return "; ".join([*([f"model: {model}"] if model else []), *known])


def _table(rows: Mapping[str, str]) -> list[str]:
    # Sort by numbers, so that task 10 comes after task 9.
    ordered = sorted(rows, key=lambda device: re.sub(r"\d+", lambda digits: digits[0].zfill(9), device))
    short = {_short(device): rows[device] for device in ordered}
    width = max(map(len, short), default=0) + 2
    wrapper = textwrap.TextWrapper(max(_WIDTH, width + 40), break_long_words=False, break_on_hyphens=False)
    wrapper.subsequent_indent = " " * (width + 2)
    return [line for device, text in short.items() for line in wrapper.wrap(f"  {device:{width}}{text}")]


def _short(device: str) -> str:
    """Return "ps0 CPU:0" for "/job:ps/replica:0/task:0/device:CPU:0".

    Any other text is returned unchanged.
    """
    match = re.fullmatch(r"/job:(\w+)/replica:0/task:(\d+)(?:/device:(\w+:\d+))?", device)
    return f"{match[1]}{match[2]} {match[3] or ''}".strip() if match else device


def _names(tasks: Sequence[str]) -> str:
    if len(tasks) <= 4:
        return ", ".join(tasks)
    return f"{tasks[0]}, {tasks[1]} ... {tasks[-1]} ({len(tasks)} tasks)"


def _read(folder: Path) -> tuple[list[Report], list[str]]:
    """Return (reports sorted by task, a complaint about each report that cannot be read).

    Both are [] for a folder that is missing or empty.
    """
    reports, complaints, left = [], [], MOST_OF_A_RUN
    for path in sorted(folder.glob("*.json"), key=lambda path: split_name(path.stem)):
        try:
            reports.append(_checked(read_json(path, min(left, MOST_OF_A_TASK))))
            left -= path.stat().st_size
        except (OSError, ValueError) as error:  # noqa: PERF203 - other reports still count
            complaints.append(printable(f"{path} cannot be read: {error}"))
    return reports, complaints


def _checked(content: object) -> Report:
    """Return the report in `content`, parsed JSON, with all texts made printable.

    Raises ValueError if it is invalid; a host sent it.
    """
    report = Report.from_json(content)
    return Report(
        printable(report.task),
        {printable(name): printable(device) for name, device in report.variables.items()},
        {
            printable(device): {printable(group): count for group, count in groups.items()}
            for device, groups in report.operations.items()
        },
    )


if __name__ == "__main__":
    sys.exit(main())
