"""All readers of data from hosts, each with valid data of its own."""

from dataclasses import replace
from pathlib import Path

from tests.fuzz.answers import (
    DOCTORS,
    PEERS,
    RUNS,
    UNIT,
    answers_of_tasks,
    archives,
    asked,
    decided,
    of_answers,
    packed,
    print_of_a_host,
    printed,
    shown_findings,
    shown_peers,
    shown_runs,
    shown_status,
    units,
    unpacked,
    unpacked_run,
    watched,
    words,
)
from tests.fuzz.damage import damaged, with_fitting_hashes
from tests.fuzz.run_folders import (
    CHECKPOINT,
    checkpoint,
    drawn_as_a_page,
    judged,
    made,
    make_it_a_programs,
    make_it_an_own_models,
    measured,
    of_file,
    step_of_checkpoint,
)
from tests.fuzz.search import Reader


def readers(folder: Path) -> list[Reader]:
    """All of them; what they read lies below a folder, which is empty."""
    model, program, drawn = (made(folder / name / "runs") for name in ("model", "program", "drawn"))
    make_it_a_programs(program)
    own = made(folder / "own" / "runs")
    make_it_an_own_models(own)
    plan = of_file("plan.json", model, "plan.json", judged)
    archive, saved = packed(), checkpoint(folder / "saved")
    return [
        of_file("records of a chief", model, "events/worker0.jsonl", judged),
        of_file("records of a worker", model, "events/worker1.jsonl", judged),
        of_file("records of an evaluator", model, "events/evaluator0.jsonl", judged),
        of_file("records of a program", program, "events/worker1.jsonl", judged),
        of_file("records that are drawn", drawn, "events/worker1.jsonl", drawn_as_a_page),
        of_file("records that root reads", model, "events/worker0.jsonl", measured),
        of_file("progress that root reads", model, "progress.json", measured),
        of_file("settings.json", model, "settings.json", judged),
        of_file("settings.json with a card", own, "settings.json", judged),
        of_file("tasks.json", program, "tasks.json", judged),
        of_file("manifest.json", model, "manifest.json", judged),
        of_file("reports of devices", model, "devices/worker0.json", judged),
        replace(plan, inputs=plan.inputs.map(with_fitting_hashes)),
        *(of_file(f"checkpoints: {file}", saved, file, step_of_checkpoint) for file in CHECKPOINT),
        Reader("what a host prints", print_of_a_host(), damaged(print_of_a_host()), printed),
        of_answers("answers for status.yml", answers_of_tasks(), shown_status),
        of_answers("answers for runs.yml", RUNS, shown_runs),
        of_answers("answers for train.yml and stop.yml", answers_of_tasks(), decided),
        of_answers("answers of the doctor", DOCTORS, shown_findings),
        of_answers("answers of the peers", PEERS, shown_peers),
        Reader("words of the lead", words(), damaged(words()) | damaged(UNIT).map(words), watched),
        Reader("units of tasks", units(), damaged(units()), asked),
        Reader("archives", archive, damaged(archive) | archives(), lambda told: unpacked(folder, told)),
        Reader(
            "packed runs", archive, damaged(archive) | archives(), lambda told: unpacked_run(folder, told)
        ),
    ]
