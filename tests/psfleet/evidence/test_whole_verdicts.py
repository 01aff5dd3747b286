"""The whole text and JSON of verdicts, compared with `whole/`.

`pytest --write-expected tests/psfleet/evidence/test_whole_verdicts.py` writes them; read the difference.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from psfleet.evidence.__main__ import main
from psfleet.evidence.run_manifest import Manifest
from tests.psfleet.evidence.run_folders import edit, events, records, rewrite
from tests.psfleet.report.made_runs import make_plan, make_run, started

WHOLE = Path(__file__).with_name("whole")
READ = {"fingerprint": "0123456789abcdef", "fingerprint_step": 600, "sample_outputs": {"y[0]": 2.0}}


def train_well(run: Path, /, workers: int, **of_steps: object) -> None:
    """The loss falls to 0.1; each worker takes twice as long as the one before."""
    for number in range(workers):
        told = records(run, f"worker{number}")
        for record in told:
            if record["event"] == "step":
                loss = 0.1 + 40 * 0.9 ** record["local_step"]
                record |= {
                    "loss_mean": loss,
                    "seconds": 0.25 * 2**number,
                    "staleness_max": number,
                    **of_steps,
                }
        rewrite(run, f"worker{number}", told)


def look_at_gradients(run: Path, workers: int) -> None:
    """Let each worker record three gradient tests before its first step, which fit its loss."""
    for number in range(workers):
        name = f"worker{number}"
        told = records(run, name)
        met = next(place for place, record in enumerate(told) if record["event"] == "peers_ready")
        look = {"event": "gradients", "losses": {name: 40.0}, "norms": {name: 12.5}, "fits": {name: 0.999}}
        looks = [told[met] | look | {"monotonic": told[met]["monotonic"] + 0.1 * time} for time in (1, 2, 3)]
        rewrite(run, name, [*told[: met + 1], *looks, *told[met + 1 :]])


def proven(run: Path) -> None:
    """Three workers and two ps: worker 1 is killed half-way and restarted, worker 2 is slow."""
    plan, found = make_plan(workers=3, ps=2), {"weight": 2.0, "bias": 10.0, "mean_error": 0.25}
    make_run(run, plan)
    train_well(run, 3, examples=250)
    edit(run, "worker0 worker1 worker2", "peers_ready", ps_nonces={"ps0": 7, "ps1": 8})
    edit(run, "worker0 worker1 worker2", "finished", **READ)
    every = records(run, "worker1")
    again = [record | {"pid": 101, "nonce": 2001} for record in every[:2]]
    later = [record | {"pid": 101, "local_step": record["local_step"] - 100} for record in every[12:]]
    rewrite(run, "worker1", [*every[:12], *again, *later])
    held = {"ps0": {"variables": 2, "bytes": 300}, "ps1": {"variables": 1, "bytes": 100}}
    edit(run, "worker0", "initialised", ps_parameters=held)
    edit(run, "worker0", "evaluated", metrics=found)
    told = records(run, "worker0")
    saved = {"event": "checkpointed", "global_step": 600, "path": "model.ckpt-600", "bytes": 9, "seconds": 1}
    rewrite(run, "worker0", [*told[:-1], told[-1] | saved, told[-1]])
    apart = READ | {
        "event": "evaluated",
        "global_step": 600,
        "metrics": found | {"weight": 2.001},
        "examples": 9,
    }
    alone = [started(9), apart, {"event": "finished", "reason": "run over"}]
    of_evaluator = told[0] | {"job": "evaluator", "index": 0}
    rewrite(run, "evaluator0", [of_evaluator | record for record in alone])
    look_at_gradients(run, 3)


def not_proven(run: Path) -> None:
    """One of ten workers left no records, another was not counted, and a metric is not a number."""
    make_run(run, make_plan(workers=10), windows=3)
    train_well(run, 10)
    events(run, "worker9").unlink()
    counts = {f"worker{number}": 30 for number in (*range(8), 9)}
    edit(run, "worker0", "finished", contributions=counts, last_step=500)
    edit(run, "worker0", "evaluated", metrics={"weight": None, "bias": 10.5})
    asked = {"minimum_share": 0.3, "goals": {"bias": {"maximum": 10}}}
    content = json.loads((run / "settings.json").read_text())
    (run / "settings.json").write_text(json.dumps(content | {"evidence": asked}))
    Manifest.of(run).write(run)
    edit(run, "worker1", "finished", reason="stopped")


@pytest.mark.parametrize("make", [proven, not_proven])
def test_the_whole_text_and_json_of_a_verdict_are_as_expected(
    make: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    expect_text: Callable[[Path, str], None],
) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("run"))
    main(["run"])
    told = capsys.readouterr().out
    written = Path("run/verdict.json").read_text()
    expect_text(WHOLE / f"{make.__name__}.txt", told)
    expect_text(WHOLE / f"{make.__name__}.json", written)
    main(["run", "--json"])
    assert capsys.readouterr().out == written


def test_the_help_of_the_command_is_as_expected(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    expect_text: Callable[[Path, str], None],
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    with pytest.raises(SystemExit):
        main(["--help"])
    expect_text(WHOLE / "help.txt", capsys.readouterr().out)
