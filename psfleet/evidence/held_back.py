"""What held a run back, by its own records: the causes, with their figures, and what helps against each.

The share of a cause is the part of the workers' time that it took. Shares make causes comparable: without a
cause of share s, the run would need 1 - s of its time. docs/performance.md explains each cause.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from psfleet.evidence.answer import size
from psfleet.evidence.price_of_faults import saving_seconds
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.task_records import TaskRecords
from psfleet.evidence.time_spent import (
    Span,
    TimeSpent,
    least_parts,
    seconds_of,
    server_of,
    time_spent,
    use_of_ps,
    waiting_for_workers,
)
from trainer.host.wording import counted, first_of

# A cause below this share is not worth a change: without it the run would be less than 1.25 times as fast.
WORTH_NAMING = 0.2
# A second cause is named if its share is at least this part of the largest cause's share: it comes next.
NEAR = 0.5
# In a shorter training, the first steps count for too much: TensorFlow prepares its graphs in them.
SHORTEST_SECONDS = 2.0
# A ps whose threads wait longer for a core than they run lacks cores, not a second ps.
HALF = 0.5
# Parts of the time in which a ps has work. Above the first, every call queues; below the second, few do.
PS_FULL, PS_IDLE = 0.8, 0.5
# Bits per second, and bytes of a step. Links of clusters carry 100 Mbit/s or more. A worker that waits
# longer than such a link needs for its bytes waits for round trips, unless the bytes are many: some links
# are slower.
SLOWEST_LINK, MANY_BYTES = 100e6, 1_000_000
# The CPU of a worker's step whose batch costs next to nothing: `linear`, asynchronous (docs/performance.md).
STEP_CPU_SECONDS = 0.0006


@dataclass(frozen=True)
class Cause:
    """One thing that held a run back.

    `cause` is its name, such as "stragglers" or "network". It took at least the part `share`, 0 to 1, of the
    workers' time. `finding` says in words what the records show, and `helps` what the user can change.
    """

    cause: str
    share: float
    finding: str
    helps: str


@dataclass(frozen=True)
class HeldBack:
    """What held a run back.

    `causes` are the causes, the largest first, at most two; () if none is known. `unknown` says what the
    records do not tell, or is "". `time` is where the workers' time went, None if that is unknown.
    """

    causes: tuple[Cause, ...]
    unknown: str
    time: TimeSpent | None

    def as_dict(self) -> dict[str, Any]:
        """Return the value of `held_back` in the figures: the fields, with each cause as a dictionary."""
        return asdict(self)


def held_back(
    run: Run,
    speeds: Mapping[str, Mapping[str, float | None]],
    faults: Mapping[str, Any],
) -> HeldBack:
    """Return what held a run back, from its records and its figures.

    `speeds` is the result of `speeds_of`, `faults` the result of `price_of`. For a training of less than two
    seconds there are no causes, and `unknown` says so.
    """
    seconds = max(map(seconds_of, run.with_lost), default=0.0)
    if seconds < SHORTEST_SECONDS:
        return HeldBack((), f"training took {seconds:.1f} s, too short to tell", None)
    time = None if run.program is not None else time_spent(run)
    found = [*_straggler_causes(run, speeds), *_fault_causes(run, faults, seconds)]
    unknown = "programs do not record what their processes use"
    if run.program is None:
        unknown = "the tasks recorded too little of what their processes used"
    if time is not None:
        if hidden := _hidden_work(run):
            time = replace(time, elsewhere=Span(0.0, time.elsewhere.most))
        found += _time_causes(run, time, seconds)
        largest = max((cause.share for cause in found), default=0.0)
        parts = (time.without_core, time.elsewhere)
        is_open = any(part.least < WORTH_NAMING <= part.most > largest for part in parts)
        unknown = (hidden or _bounds(time)) if is_open else ""
    found = sorted((cause for cause in found if cause.share >= WORTH_NAMING), key=lambda cause: -cause.share)
    if time is not None and not found and not unknown:
        found = [_compute_cause(run, time)]
    near = [cause for cause in found if cause.share >= NEAR * found[0].share]
    return HeldBack(tuple(near[:2]), unknown, time)


def _hidden_work(run: Run) -> str:
    """Return why a worker that seems to wait for the ps and the network may wait for something else.

    There is a reason if the run has GPUs, is in-graph, or has no ps. Return "" otherwise.
    """
    if _has_gpus(run):
        return "while a GPU computes its worker looks as if it waited, and no record has the GPU's time"
    if run.rules.replication == "in_graph":
        return "the records do not tell the client's waits for other workers from those for the network"
    return "" if run.ps else "the process waited, and no record says for what"


def _bounds(time: TimeSpent) -> str:
    least, most = 1 - time.elsewhere.most, 1 - time.elsewhere.least
    return (
        f"the workers had work in {least:.0%} to {most:.0%} of their time; a longer run shows it more closely"
    )


def _straggler_causes(run: Run, speeds: Mapping[str, Mapping[str, float | None]]) -> Iterator[Cause]:
    """Yield the one cause `stragglers`: others waited for slow workers, or slow workers took fewer steps.

    Its share may be 0. Yield nothing for one worker, for a replication other than sync and async, or if no
    speed is known. `speeds` is the result of `speeds_of`.
    """
    slowdowns = {name: slow for name, speed in speeds.items() if (slow := speed["slowdown"]) is not None}
    if not slowdowns or len(speeds) < 2:
        return
    name = max(slowdowns, key=lambda worker: slowdowns[worker])
    times = slowdowns[name]
    why, helps = _why_slow(run, name)
    if run.rules.replication == "sync":
        share = waiting_for_workers(run)
        of_each = f"{name} took {times:.1f} times as long as the median worker for its part of a step"
        who = f"{of_each}{why}" if times >= 1.2 else "no worker was slow all the time, but one in each step"
        finding = f"slow workers: the others waited for {share:.0%} of the workers' time; {who}"
        yield Cause("stragglers", share, finding, _against_stragglers(run, times, helps))
    elif run.rules.replication == "async":
        share = sum(max(1 - 1 / slow, 0.0) for slow in slowdowns.values() if slow >= 1) / len(slowdowns)
        finding = f"{name} took {times:.1f} times as long as the median worker for a step{why}"
        yield Cause("stragglers", share, finding, helps)


def _why_slow(run: Run, name: str) -> tuple[str, str]:
    """Return (why the worker `name` was slow, what helps).

    The reason is a clause that begins with ", and"; "" if the records do not tell. What helps is never "".
    """
    host = _host_of(run, name)
    parts = least_parts(run, run.task(name))
    if parts.elsewhere >= HALF and not _hidden_work(run):
        why = f", and waited for the network and the ps in at least {parts.elsewhere:.0%} of its time"
        return why, f"look at the link of {host}"
    why = f", and its threads had no core in at least {parts.without_core:.0%} of its time"
    helps = f"look at {host}: doctor.yml, other programs, its link"
    if run.rules.replication == "sync":
        helps = f"a smaller trainer_batch_size on {host}"
    return why if parts.without_core >= WORTH_NAMING else "", helps


def _against_stragglers(run: Run, times: float, of_slowest: str) -> str:
    workers = run.rules.workers
    if run.rules.gradients_per_step == workers > 2:
        return f"trainer_replicas_to_aggregate: {workers - 1} makes steps without the slowest worker"
    # Asynchronously, a worker that is so slow would not have its fair share of the steps.
    too_slow = times * EvidenceSettings().minimum_share > 1
    return of_slowest if too_slow else f"{of_slowest}, or trainer_replication: async"


def _fault_causes(run: Run, faults: Mapping[str, Any], seconds: float) -> Iterator[Cause]:
    """Yield one cause for the time in which no step of the model was taken; nothing if that is unknown.

    The cause is `faults` if steps were lost or a task restarted or left no ending; else `saves` if saving
    took at least half of that time; else `pauses`. Its share may be 0. `faults` is the result of `price_of`.
    """
    if faults["goodput"] is None:
        return
    share, still, lost = 1 - faults["goodput"], faults["still_seconds"], faults["steps_lost"]
    price = f"{share:.0%} of the workers' time went into no step of the model"
    starts = sum(max(len(task.processes) - 1, 0) for task in (*run.workers, *run.ps))
    breaks = sum(len(worker.of("recovering")) for worker in run.workers)
    gone = [worker.name for worker in run.workers if worker.records and worker.ending is None]
    if lost or starts or breaks or gone:
        who = f", {first_of(gone, 3)} left no ending" if gone else ""
        what = f"{still:.1f} s without training, {counted(lost, 'step')} lost, {counted(starts, 'new start')}"
        helps = "the timeline and the logs say what ended"
        helps = "a shorter trainer_checkpoint_interval_seconds loses fewer steps" if lost else helps
        yield Cause("faults", share, f"interruptions: {price} ({what}{who})", helps)
    elif saving_seconds(run) >= share * seconds / 2:
        what = f"{counted(len(run.chief.of('checkpointed')), 'save')} took {saving_seconds(run):.1f} s"
        helps = "a longer trainer_checkpoint_interval_seconds"
        yield Cause("saves", share, f"saves: {price} ({what})", helps)
    else:
        yield Cause("pauses", share, f"pauses: {price}, for no recorded reason", "the timeline and the logs")


def _time_causes(run: Run, time: TimeSpent, seconds: float) -> Iterator[Cause]:
    """Yield the causes that follow from where the workers' time went, other than computing.

    They are `cores`, then `calls` for small steps if the CPU time of a step is known, then the cause of
    waiting (`_waiting_cause`) if its share is at least WORTH_NAMING.
    """
    yield _core_cause(run, time)
    if time.cpu_seconds > 0:
        # Where cores are few, threads also wait for them so much longer.
        active = time.computing.least + time.without_core.least
        share = active * min(STEP_CPU_SECONDS / time.cpu_seconds, 1.0)
        of_step = f"each takes {_time(time.cpu_seconds)} of its worker's CPU"
        finding = f"small steps: {of_step}, of which some {_time(STEP_CPU_SECONDS)} are the price of any step"
        yield Cause("calls", share, finding, "a larger trainer_batch_size")
    if time.elsewhere.least >= WORTH_NAMING:
        yield _waiting_cause(run, time, seconds)


def _core_cause(run: Run, time: TimeSpent) -> Cause:
    """Return the cause `cores`: threads were ready and had no core.

    If only some workers lacked cores, the finding names these workers, and `helps` names their hosts.
    """
    finding = f"too few cores: ready threads had none in {_least(time.without_core)} of the workers' time"
    helps = "more hosts, or fewer tasks and other programs on these"
    if lacking := _workers_concerned(run, lambda worker: least_parts(run, worker).without_core):
        finding += f"; only {first_of([worker.name for worker in lacking], 3)} lacked them"
        hosts = sorted({_host_of(run, worker.name) for worker in lacking})
        helps = f"fewer tasks and other programs on {first_of(hosts, 3)}, or another host"
    return Cause("cores", time.without_core.least, finding, helps)


def _compute_cause(run: Run, time: TimeSpent) -> Cause:
    """Return the cause `compute`: the workers computed. It is given only if there is no other cause."""
    part = f"{_least(time.computing)} of the workers' time, {_time(time.cpu_seconds)} of CPU a step"
    helps = "more workers" if run.ps else "workers (trainer_replication: async)"
    helps += "" if _has_gpus(run) else ", or GPUs"
    return Cause("compute", time.computing.least, f"nothing but computing: {part}", helps)


def _waiting_cause(run: Run, time: TimeSpent, seconds: float) -> Cause:
    """Return the cause of the time in which workers waited for the ps and the network.

    It is `ps` if a ps had work in at least 80 % of the time; else `calls` if a step moved so few bytes that
    no link is slow enough to explain the wait; else `network` if all ps had work in less than half of the
    time; else `network_or_ps`.
    """
    share = time.elsewhere.least
    waiting = _workers_concerned(run, lambda worker: least_parts(run, worker).elsewhere)
    who = f"{first_of([worker.name for worker in waiting], 3)} alone" if waiting else "a worker"
    steps = sum(_steps_of(worker) for worker in waiting) or sum(window.steps for window in run.windows)
    step = sum(map(seconds_of, waiting or run.with_lost)) / steps
    wait = min(share * sum(map(seconds_of, run.with_lost)) / steps, step)
    waited = f"of a step's {_time(step)} {who} waited at least {_time(wait)}"
    busy = {ps.name: use.active_in(seconds) for ps in run.ps if (use := use_of_ps(ps, seconds))}
    names = first_of([ps.name for ps in run.ps], 3)
    full = [name for name, active in busy.items() if active.least >= PS_FULL]
    if full:
        finding = f"{first_of(full, 3)}: {waited}, and it had work in {_least(busy[full[0]])} of the time"
        return Cause("ps", share, finding, _against_full(run, full[0], seconds))
    idle = len(busy) == len(run.ps) and all(active.most < PS_IDLE for active in busy.values())
    most = max((active.most for active in busy.values()), default=1.0)
    of_ps = f"{names} had work in at most {most:.0%} of the time"
    moved = bytes_of_a_step(run, waiting or run.workers, steps)
    amount = "what travels" if moved is None else f"{size(round(moved))}"
    rate = "" if moved is None else f" ({_rate(8 * moved / step)})"
    finding = f"{waited} for {amount} to and from {names}{rate}; {of_ps}"
    if moved is not None and moved < MANY_BYTES and 8 * moved < SLOWEST_LINK * wait:
        return Cause("calls", share, f"calls, not their bytes: {finding}", _against_calls(run))
    cause, which = ("network", "the network") if idle else ("network_or_ps", f"the network or {names}")
    return Cause(cause, share, f"{which}: {finding}", _against_bytes(run))


def _against_full(run: Run, name: str, seconds: float) -> str:
    use = use_of_ps(run.task(name), seconds)
    if use is not None and use.without_core >= HALF:
        return f"free cores for {name}: a host without workers"
    return "one more ps, on another host"


def _against_bytes(run: Run) -> str:
    """Return one or two ways to move fewer bytes, in words; settings that the run has already are left out.

    Each setting that does so belongs in this function.
    """
    ways = []
    if run.training.get("wire_dtype") != "bfloat16":
        ways.append("trainer_wire_dtype: bfloat16 halves the bytes")
    if run.training.get("push_every") == 1 and not (run.card and run.card.needs_tables):
        ways.append("trainer_push_every: 4 to 8 moves so many times fewer bytes, but needs more examples")
    ways.append("a larger trainer_batch_size: fewer bytes for an example")
    return ", or ".join(ways[:2])


def _against_calls(run: Run) -> str:
    larger = "a larger trainer_batch_size"
    if run.rules.replication == "async" and not run.training.get("pull_ahead"):
        return f"trainer_pull_ahead: true, or {larger}"
    return f"{larger}, or fewer ps" if len(run.ps) > 1 else larger


def bytes_of_a_step(run: Run, workers: Sequence[TaskRecords], steps: int) -> float | None:
    """Return the bytes that these workers received and sent, divided by `steps`; None if unknown.

    Existing servers of the workers count, too. systemd counts the bytes of a unit over the whole run. So they
    are unknown if the run has parts or a lost worker, or if a worker was started again.
    """
    if run.parts or run.lost or any(len(worker.processes) != 1 for worker in run.workers):
        return None
    servers = [server for worker in workers if (server := server_of(run, worker))]
    endings = [run.endings.get(task.name) for task in (*workers, *servers)]
    exchanged = [ending.exchanged for ending in endings if ending is not None and ending.exchanged]
    return sum(map(sum, exchanged)) / steps if len(exchanged) == len(endings) else None


def _workers_concerned(run: Run, part: Callable[[TaskRecords], float]) -> Sequence[TaskRecords]:
    """Return the workers for which `part` is at least WORTH_NAMING; () if that is true of all workers.

    `part` maps a worker to a part of its time, 0 to 1. Workers without steps are left out.
    """
    found = [worker for worker in run.with_lost if _steps_of(worker) > 0 and part(worker) >= WORTH_NAMING]
    return found if len(found) < len(run.with_lost) else ()


def _steps_of(worker: TaskRecords) -> int:
    return sum(window.steps for window in worker.windows)


def _has_gpus(run: Run) -> bool:
    return run.plan is not None and any(task.gpus for task in run.plan.tasks_of("worker"))


def _host_of(run: Run, name: str) -> str:
    return next((task.host for task in run.expected if task.name == name), "its host")


def held_back_in_words(figure: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Return (heading, text) pairs: what held the run back; and if a cause is known, what helps.

    `figure` is the value of `held_back` in the figures. The headings are "held back by" and "what helps".
    Without a cause, the text is "not known: ..", or "nothing that the records show".
    """
    causes, unknown = figure["causes"], figure["unknown"]
    if not causes:
        return [("held back by", f"not known: {unknown}" if unknown else "nothing that the records show")]
    more = f"; what else is not known: {unknown}" if unknown else ""
    found = "; and ".join(cause["finding"] for cause in causes)
    return [("held back by", f"{found}{more}"), ("what helps", "; ".join(cause["helps"] for cause in causes))]


def _least(span: Span) -> str:
    return f"at least {span.least:.0%}"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _rate(bits: float) -> str:
    amount, unit = (bits / 1e9, "Gbit/s") if bits >= 1e9 else (bits / 1e6, "Mbit/s")
    return f"{amount:.3g} {unit}"
