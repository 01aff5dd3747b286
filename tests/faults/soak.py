"""`make soak`: one long run under random faults, 2 ps and 3 workers on 4 container hosts.

A short run without a fault comes first: its rate decides how many steps the long one takes. What is done,
and when, is random by a seed, which is printed. With slow links tasks wait for the network and not for each
other's cores, as on machines of their own.
"""

import argparse
import math
import random
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.network import limit_commands
from tests.faults.cluster import Cluster, FaultError, cluster
from tests.faults.injections import Fault, cut, hangs, killed, rebooted
from tests.faults.outcome import records_of, verdict_of
from tests.faults.watched import Watched

# The chief is alone on its host, a ps shares one with a worker.
GROUPS = (("ps",), ("worker",), ("worker",), ("ps", "worker"))
FIRST_STEPS = 5000
# What a fault costs, about: this decides how many steps the long run takes.
SECONDS_FOR_A_FAULT = 10.0
# For so long a save of this model stops training, at most.
SAVE_SECONDS = 0.05


def main(arguments: Sequence[str]) -> int:
    """Train under faults; return 1 if the run was not proven or tasks were left over."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--every", type=float, default=30.0, help="seconds from one fault to the next")
    parser.add_argument("--links", type=int, help="Mbit/s that each host can send; else without a limit")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}: a fault each {options.every:.0f} s, {options.minutes:g} min", flush=True)
    with cluster(*GROUPS) as made:
        limit_links(made, options.links)
        useful = options.every / (options.every + SECONDS_FOR_A_FAULT)
        steps = round(rate_of(made) * options.minutes * 60 * useful)
        # As docs/trainer.md advises, by Young (1974).
        interval = math.sqrt(2 * options.every * SAVE_SECONDS)
        print(f"{steps} steps, a checkpoint each {interval:.1f} s", flush=True)
        settings = (f"trainer_steps={steps}", f"trainer_checkpoint_interval_seconds={interval:.1f}")
        run = Watched.start(made, "soak", *("-e", settings[0]), *("-e", settings[1]))
        run.await_step(1)
        faults = injected(run, random.Random(options.seed), options.every, options.links)
        run.end()
        return summarised(made, run, faults)


def rate_of(made: Cluster) -> float:
    """Train without a fault; return the global steps per second. Raises FaultError unless it is proven."""
    run = Watched.start(made, "first", "-e", f"trainer_steps={FIRST_STEPS}")
    run.end()
    folder = made.folder / "runs" / run.run_id
    if (verdict := verdict_of(folder).get("verdict")) != "proven":
        raise FaultError(f"a run without a fault is {verdict}")
    walls = [float(record["wall"]) for record in records_of(folder) if record.get("event") == "step"]
    rate = FIRST_STEPS / (walls[-1] - walls[0])
    print(f"without a fault: proven, {rate:.0f} global steps/s", flush=True)
    return rate


def limit_links(made: Cluster, megabits: int | None, hosts: Sequence[str] = ()) -> None:
    """Limit what each of these hosts can send, or each host without any, until it reboots."""
    if megabits is not None:
        for host in hosts or sorted(set(made.places.values())):
            network = f"--net=/proc/{made.init_of(host)}/ns/net"
            for command in limit_commands("eth0", megabits):
                subprocess.run(["nsenter", network, *command], check=True)


def injected(run: Watched, source: random.Random, every: float, links: int | None) -> int:
    """Inject a random fault each so many seconds until the run ends; return how many there were."""
    began = time.monotonic()
    number = 0
    while True:
        # A fault that takes longer than its turn delays the next one.
        while run.process.poll() is None and time.monotonic() < began + (number + 1) * every:
            time.sleep(0.1)
        if run.process.poll() is not None:
            return number
        number += 1
        name, fault = drawn(run.cluster, source)
        step, since = run.cluster.global_step(run.run_id), time.monotonic()
        try:
            fault(run)
        except FaultError as error:
            print(f"{since - began:6.0f} s: {name} did not bite: {error}", flush=True)
        else:
            print(
                f"{since - began:6.0f} s, step {step}: {name}, {time.monotonic() - since:.1f} s", flush=True
            )
        limit_links(run.cluster, links)


def drawn(made: Cluster, source: random.Random) -> tuple[str, Fault]:
    """Return a random fault and its name."""
    task, host = source.choice(list(made.places)), source.choice(sorted(set(made.places.values())))
    seconds = source.randint(5, 40)
    kinds: list[tuple[str, Fault]] = [
        (f"{task} is killed", killed(task)),
        (f"{task} hangs", hangs(task)),
        (f"{host} reboots", rebooted(host)),
        (f"{host} is cut off for {seconds} s", cut(host, seconds)),
    ]
    # Half of the faults are kills.
    return source.choices(kinds, (3, 1, 1, 1))[0]


def summarised(made: Cluster, run: Watched, faults: int) -> int:
    """Print what became of the run; return the exit status."""
    verdict = verdict_of(made.folder / "runs" / run.run_id)
    left = made.left_over()
    price = dict(verdict.get("figures", {}).get("faults", {}))
    price.pop("restores", None)
    for check in verdict.get("checks", ()):
        if check["ok"] is not True:
            print(f"{check['check']}: {check['detail']}")
    print(f"{faults} faults: {verdict.get('verdict')}, {verdict.get('headline')}; {price}; left over: {left}")
    return int(verdict.get("verdict") != "proven" or bool(left))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
