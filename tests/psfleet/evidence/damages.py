"""Ways to damage the folder of a run, or to write its records anew, that several tests share."""

import shutil
from pathlib import Path

from tests.psfleet.evidence.run_folders import (
    Record,
    begin_with,
    drop,
    edit,
    events,
    records,
    rewrite,
    steps_and_others,
    tell_settings,
)


def cut_the_last_line(run: Path) -> None:
    content = events(run, "worker1").read_bytes()
    events(run, "worker1").write_bytes(content[:-40])


def cut_in_the_middle(run: Path) -> None:
    content = events(run, "worker1").read_bytes()
    events(run, "worker1").write_bytes(content[: len(content) // 3])


def double_every_line(run: Path, task: str = "worker1") -> None:
    rewrite(run, task, [record for record in records(run, task) for _ in range(2)])


def lose_everything(run: Path) -> None:
    shutil.rmtree(run)
    run.mkdir()


def reverse_the_steps(run: Path) -> None:
    steps, others = steps_and_others(run, "worker1")
    rewrite(run, "worker1", [*others[:-1], *reversed(steps), others[-1]])


def take_no_step(run: Path, tasks: str) -> None:
    drop(run, tasks, "step")
    edit(run, tasks, "finished", local_step=0)


def train_another_model(run: Path, model: str) -> None:
    tell_settings(run, model=model)
    begin_with(run, "worker0 worker1", model=model)


def shift_a_clock(run: Path) -> None:
    changed = [
        record | {"wall": record["wall"] + 600, "monotonic": record["monotonic"] - 3000}
        for record in records(run, "worker1")
    ]
    rewrite(run, "worker1", changed)


def lose_a_number_in_the_loss(run: Path) -> None:
    every, place = _with_a_window(run)
    lost = every[place] | {"loss": None, "loss_mean": None}
    rewrite(run, "worker1", [*every[:place], lost, *every[place + 1 :]])


def record_a_window_without_a_step(run: Path) -> None:
    every, place = _with_a_window(run)
    empty = every[place] | {"steps": 0, "global_step_before": every[place]["global_step_after"]}
    rewrite(run, "worker1", [*every[: place + 1], empty, *every[place + 1 :]])


def _with_a_window(run: Path) -> tuple[list[Record], int]:
    """The records of worker 1, and the place of a window among them."""
    every = records(run, "worker1")
    return every, [place for place, record in enumerate(every) if record["event"] == "step"][28]
