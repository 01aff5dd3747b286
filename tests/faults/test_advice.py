"""What held a run back and what helps, as runs on container hosts end with it: each host has one fault.

They need a machine that does nothing else: beside other programs, the lack of cores holds a run back.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.faults.cluster import Cluster, cluster
from tests.faults.outcome import verdict_of
from tests.faults.soak import limit_links

pytestmark = pytest.mark.chaos

SLOW_HOST, SLOW_WORKER = "node3", "worker1"
WIDE = {"model": "mnist_mlp", "hidden_units": 5000, "optimizer": "adam"}


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    with cluster(["ps"], ["worker"], ["worker"]) as made:
        yield made


def figures_of(made: Cluster, run_id: str, **settings: object) -> Mapping[str, Any]:
    """Train; return the figures of the run, which must be proven."""
    options = json.dumps({f"trainer_{name}": value for name, value in settings.items()})
    done = made.play("train.yml", "-e", f"run_id={run_id}", "-e", options)
    verdict = verdict_of(made.folder / "runs" / run_id)
    assert verdict.get("verdict") == "proven", done.stdout[-3000:]
    figures: Mapping[str, Any] = verdict["figures"]
    for cause in figures["held_back"]["causes"]:
        assert cause["finding"] in done.stdout
        assert cause["helps"] in done.stdout
    return figures


def what_helps(figures: Mapping[str, Any]) -> Mapping[str, str]:
    return {cause["cause"]: cause["helps"] for cause in figures["held_back"]["causes"]}


def test_larger_batches_instead_of_small_ones_save_what_each_step_costs(made: Cluster) -> None:
    small = figures_of(made, "small", model="mnist_mlp", batch_size=4, steps=8000)
    assert "a larger trainer_batch_size" in what_helps(small)["calls"]
    large = figures_of(made, "large", model="mnist_mlp", batch_size=40, steps=1600)
    cpu_seconds = [figures["held_back"]["time"]["cpu_seconds"] for figures in (small, large)]
    assert cpu_seconds[1] / 40 < cpu_seconds[0] / 4 / 2


def test_on_narrow_links_fewer_pushes_of_half_the_bytes_are_advised_and_help(made: Cluster) -> None:
    limit_links(made, 50)
    wide = figures_of(made, "wide", steps=240, **WIDE)
    found = what_helps(wide)
    helps = found.get("network") or found["network_or_ps"]
    assert "trainer_wire_dtype: bfloat16" in helps
    assert "trainer_push_every: 4 to 8" in helps
    rarer = figures_of(made, "rarer", steps=130, wire_dtype="bfloat16", push_every=8, **WIDE)
    moved = [figures["tasks"]["ps0"]["bytes_sent"] / figures["examples"] for figures in (wide, rarer)]
    assert moved[1] < moved[0] / 10


def test_the_slow_link_of_one_host_is_named(made: Cluster) -> None:
    limit_links(made, 10, [SLOW_HOST])
    figures = figures_of(made, "slow", **WIDE | {"hidden_units": 2000}, replication="sync", steps=120)
    assert what_helps(figures)["stragglers"].startswith(f"look at the link of {SLOW_HOST}")
    findings = [cause["finding"] for cause in figures["held_back"]["causes"]]
    slow = next(finding for finding in findings if f"{SLOW_WORKER} took" in finding)
    assert "waited for the network and the ps" in slow
