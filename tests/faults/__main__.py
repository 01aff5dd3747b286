"""`make faults`: inject each fault into a run of its own, and write the table `fault-table` in docs.

The order is random by a seed, which is printed. With names of rows, only these are tried, and the others
stay in the table as they are.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.data import ROOT
from benchmarks.deployment import groups_of
from benchmarks.results import machine
from tests.faults.cluster import Cluster, FaultError, cluster
from tests.faults.outcome import (
    NOT_TRIED,
    Outcome,
    records_of,
    seconds_until_training,
    steps_lost,
    verdict_of,
)
from tests.faults.rows import ROWS, Row
from tests.faults.table import in_words, page, picture
from tests.faults.watched import Watched
from trainer.contract.json_files import write_json

STEPS = ("-e", "trainer_steps=20000")
# A fault comes between these global steps.
EARLIEST, LATEST = 3000, 9000


def main(arguments: Sequence[str]) -> int:
    """Try the rows; return 1 if one of them did not end as it must."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("rows", nargs="*", help=f"of {', '.join(row.number for row in ROWS)}")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args(arguments)
    chosen = [row for row in ROWS if not options.rows or row.number in options.rows]
    source, before = random.Random(options.seed), machine()
    source.shuffle(chosen)
    print(f"seed {options.seed}: {', '.join(row.number for row in chosen)}", flush=True)
    found: dict[str, Outcome] = {}
    with cluster(*groups_of(3)) as made:
        for place, row in enumerate(chosen):
            found[row.number] = outcome_of(made, row, f"fault{place}", source.randint(EARLIEST, LATEST))
            print(in_words(row, found[row.number]), flush=True)
            write_row(ROOT / "docs", row.number, found[row.number], before | {"seed": options.seed})
    wrong = [row.number for row in chosen if found[row.number].wrong(row.verdict, told=bool(row.told))]
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} rows ended as they must. Not so: {wrong}")
    return int(bool(wrong))


def write_row(folder: Path, number: str, outcome: Outcome, tried_on: Mapping[str, object]) -> None:
    """Put a row into the table: a page, a picture, and JSON with what each row was tried on."""
    path = folder / "fault-table.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    rows[number] = {**vars(outcome), "tried_on": tried_on}
    write_json(path, rows)
    (folder / "fault-table.md").write_text(page(rows), encoding="utf-8")
    (folder / "fault-table.svg").write_text(f"{picture(rows)}\n", encoding="utf-8")


def outcome_of(made: Cluster, row: Row, run_id: str, step: int) -> Outcome:
    """Start a run and try a row with it; where its fault did not bite, make the cluster fit for the next."""
    if left := made.left_over():
        raise RuntimeError(f"before {row.number}, tasks still live: {left}")
    run = Watched.start(made, run_id, *STEPS, *row.options)
    try:
        return tried(run, row, step)
    except (FaultError, subprocess.SubprocessError) as error:
        made.heal()
        run.end()
        return Outcome(NOT_TRIED, f"{type(error).__name__}: {error}", left_over=made.left_over())


def tried(run: Watched, row: Row, step: int) -> Outcome:
    """Inject the fault of a row into a run at a global step, and return what became of the run."""
    run.await_step(step)
    since = time.time()
    row.fault(run)
    healed, since = time.time(), run.hit_at or since
    status = run.end()
    folder = run.cluster.folder / "runs" / run.run_id
    records = records_of(folder)
    seen = run.first_line(row.told, since) if row.told else None
    verdict = verdict_of(folder)
    return Outcome(
        verdict=str(verdict.get("verdict", "none")),
        headline=str(verdict.get("headline", "")),
        exit_status=status,
        seconds_until_told=seen[0] - since if seen else None,
        told=seen[1].strip() if seen else "",
        seconds_until_training=seconds_until_training(records, since if row.hit else healed, row.hit),
        steps_lost=steps_lost(records),
        left_over=run.cluster.left_over(),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
